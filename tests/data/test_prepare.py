"""Whole data sets: what is kept and what is not, said with numbers and ids; caching, processes, several sources."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from prefopt.data import DataOptions, Prepared, Source, encode_row, prepare_rows, write_report
from prefopt.data.encode import Encoder
from prefopt.errors import DataError

from .tokenizers import build, plain, real_data, with_bos

GOOD = [{"prompt": f"the sky {i}", "chosen": f" is blue {i}.", "rejected": " is green."} for i in range(40)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


def file_of(tmp_path: Path, records: list[dict[str, Any]], name: str = "pairs.jsonl") -> Source:
    path = tmp_path / name
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return Source(str(path))


def prepare(tmp_path: Path, records: list[dict[str, Any]], **options: Any) -> Prepared:
    return prepare_rows([file_of(tmp_path, records)], plain(), DataOptions(**options))


BAD = [
    {"prompt": "a", "chosen": " b", "rejected": " b", "id": "same"},
    {"prompt": "a", "chosen": " b", "rejected": "", "id": "empty"},
    {"prompt": "a", "chosen": None, "rejected": " b", "id": "null"},
    {"prompt": "a", "chosen": 5, "rejected": " b", "id": "five"},
    {"prompt": "the sky " * 30, "chosen": " b", "rejected": " c", "id": "long"},
    {"prompt": "a", "chosen": " b", "rejected": " c " * 30, "id": "wide"},
    {"prompt": "a", "chosen": " b", "rejected": " c", "score_chosen": float("nan"), "score_rejected": 1, "id": "nan"},
]
REASONS = {
    "identical": ["same"],
    "empty_answer": ["empty"],
    "null_field": ["null"],
    "bad_message": ["five"],
    "prompt_too_long": ["long"],
    "too_long": ["wide"],
    "nonfinite": ["nan"],
}


def test_rows_that_cannot_be_used_are_counted_by_reason_with_their_ids(tmp_path: Path) -> None:
    found = prepare(tmp_path, GOOD + BAD, max_length=32, max_lost=0.2)
    audit = found.audit
    assert (audit.read, audit.kept, len(found.rows)) == (47, 40, 40)
    assert {reason: list(ids) for reason, ids in audit.lost.items()} == REASONS
    assert audit.counts == dict.fromkeys(REASONS, 1)
    report = json.loads(json.dumps(audit.to_json()))
    assert report["rows"] == {"read": 47, "kept": 40, "lost": 7}
    assert report["lost"]["null_field"] == {
        "count": 1,
        "why": "a column that is needed holds nothing",
        "first": "column 'chosen' holds nothing",
        "ids": ["null"],
    }
    lines = " ".join(audit.lines())
    assert "train: 40 of 47 rows can be used." in lines
    assert "1 identical (same)" in lines


def test_rows_are_those_of_encode_row_with_stable_ids(tmp_path: Path) -> None:
    found = prepare(tmp_path, [*GOOD[:3], GOOD[3] | {"id": 17}])
    assert found.rows["id"][:] == ["train-000000", "train-000001", "train-000002", "17"]
    assert set(found.rows.column_names) == {"id", "prompt_ids", "responses", "masks", "length"}
    for row, record in zip(found.rows, GOOD, strict=False):
        expected = encode_row(record, plain(), DataOptions())
        assert {k: row[k] for k in ("prompt_ids", "responses", "masks", "length")} == {
            "prompt_ids": expected.prompt_ids,
            "responses": expected.responses,
            "masks": expected.masks,
            "length": expected.length,
        }


def test_losing_too_much_stops_with_the_reasons_and_what_to_change(tmp_path: Path) -> None:
    with pytest.raises(DataError) as found:
        prepare(tmp_path, GOOD[:10] + BAD[:2])
    text = str(found.value)
    assert text.startswith("train: 2 of 12 rows (17%) cannot be used, more than data.max_lost allows (5%).")
    assert "identical: 1 (same; the first: 'chosen' and 'rejected' are the same)" in text
    assert "empty_answer: 1 (empty; the first: 'rejected' has no text)" in text
    assert "data.max_lost" in text.splitlines()[-1]


def test_nothing_left_stops_whatever_may_be_lost(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)no row can be used.*`data\.allow_empty: true` keeps"):
        prepare(tmp_path, BAD[1:2], max_lost=1.0)


UNPAIRED = [{"prompt": f"the sky {i}", "completion": " is blue.", "label": i % 4 == 0} for i in range(40)]


def test_undesirable_completions_are_left_out_and_not_counted_as_lost(tmp_path: Path) -> None:
    audit = prepare(tmp_path, UNPAIRED, responses="single").audit
    assert (audit.read, audit.kept, audit.counts) == (40, 10, {"undesirable": 30})
    assert "Left out: 30 undesirable (train-000001, " in " ".join(audit.lines())
    broken = [{"prompt": "a", "completion": " ", "label": True}] * 2
    with pytest.raises(DataError, match=r"(?s)2 of 12 rows \(17%\) cannot be used.*undesirable: 30.*allow_empty"):
        prepare(tmp_path, UNPAIRED + broken, responses="single")
    assert prepare(tmp_path, UNPAIRED + broken, responses="single", max_lost=0.2).audit.kept == 10


def test_undesirable_completions_alone_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)no row can be used.*this one needs `label: true`"):
        prepare(tmp_path, UNPAIRED[1:4], responses="single", max_lost=1.0)


def test_advice_names_no_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError) as found:
        prepare(tmp_path, BAD[:1])
    assert str(found.value).splitlines()[-1] == (
        "  A pair needs two different responses; data.max_lost sets how many may be lost."
    )


def test_a_missing_column_is_told_with_the_columns_there_are(tmp_path: Path) -> None:
    records = [{"question": "a", "response_j": "b", "response_k": "c"}]
    with pytest.raises(DataError, match=r"(?s)column 'chosen' is missing.*question, response_j, response_k.*columns:"):
        prepare(tmp_path, records)
    source = file_of(tmp_path, records)
    mapped = {"prompt": "question", "chosen": "response_j", "rejected": "response_k"}
    assert len(prepare_rows([Source(source.path, columns=mapped)], plain(), DataOptions()).rows) == 1
    wrong = mapped | {"rejected": "respons_k"}
    with pytest.raises(
        DataError, match=r"pairs\.jsonl: no record has the column 'respons_k'. Did you mean 'response_k'"
    ):
        prepare_rows([Source(source.path, columns=wrong)], plain(), DataOptions())


EXTRA = {"score_chosen": 9, "score_rejected": 2.5, "meta": {"src": "x"}, "image": None, "ref_chosen_logps": -3.2}


def test_columns_that_are_not_read_are_listed_once_and_kept(tmp_path: Path) -> None:
    found = prepare(tmp_path, [record | EXTRA | {"answer": i} for i, record in enumerate(GOOD)])
    assert found.audit.unused == ("meta", "ref_chosen_logps")
    assert json.loads(found.rows[0]["extra"]) == {"meta": {"src": "x"}, "ref_chosen_logps": -3.2}
    assert found.rows[3]["answer"] == "3"
    assert found.rows[0]["external"] == [9.0, 2.5]
    assert [line for line in found.audit.lines() if "not read" in line] == [
        "Columns that are not read: meta, ref_chosen_logps."
    ]


def test_columns_of_other_methods_are_kept_and_told(tmp_path: Path) -> None:
    records = [record | {"chosen_deviation": 0.5, "diff_spans_chosen": [[0, 99]]} for record in GOOD[:2]]
    found = prepare(tmp_path, records, needs=("deviation",))
    assert json.loads(found.rows[1]["extra"]) == {"diff_spans_chosen": [[0, 99]]}
    assert found.audit.unused == ("diff_spans_chosen",)
    assert found.rows["deviation"][0][0] == 0.5


def test_optional_columns_may_be_there_for_some_rows(tmp_path: Path) -> None:
    found = prepare(tmp_path, [GOOD[0] | {"answer": "x"}, GOOD[1]])
    assert found.rows["answer"][:] == ["x", None]


def test_several_rejected_become_pairs(tmp_path: Path) -> None:
    records = [{"prompt": "the sky", "chosen": " is blue", "rejected": [" is red", " is green"], "id": "a"}, GOOD[0]]
    with pytest.raises(DataError, match=r"a .record 1.: the row has 2 rejected responses.*negatives: expand"):
        prepare(tmp_path, records)
    found = prepare(tmp_path, records, negatives="expand")
    assert found.rows["id"][:] == ["a#1", "a#2", "train-000001"]
    assert all(len(r) == 2 for r in found.rows["responses"])
    many = prepare(tmp_path, records, responses="many")
    assert [len(r) for r in many.rows["responses"]] == [3, 2]


def test_rejected_responses_that_are_dropped_count_once_per_record(tmp_path: Path) -> None:
    several = [" is red", "", " is green", " is red", " is grey"]
    records = [
        {"prompt": "the sky", "chosen": " is blue", "rejected": several, "id": "a"},
        {"prompt": "the sky", "chosen": " is blue", "rejected": [" is red" * 40, *several], "id": "b"},
    ]
    found = prepare(tmp_path, records, negatives="expand", max_length=32, max_lost=0.5)
    assert found.rows["id"][:] == ["a#1", "a#2", "a#3", "b#2", "b#3", "b#4"]
    assert found.audit.notes == {"negatives_dropped": 2}
    assert found.audit.noted["negatives_dropped"] == ["a#1", "b#2"]  # the first that is kept
    many = prepare(tmp_path, records[:1], responses="many", max_length=32)
    assert many.audit.notes == {"negatives_dropped": 1}


def test_a_repeated_id_is_made_unique_and_said(tmp_path: Path, caplog) -> None:
    records = [GOOD[i] | {"id": name} for i, name in enumerate(["a", "a", "b", "a-2", "a"])]
    with caplog.at_level(logging.WARNING):
        found = prepare(tmp_path, records)
    assert found.rows["id"][:] == ["a", "a-3", "b", "a-2", "a-4"]
    assert found.audit.notes["duplicate_id"] == 2
    assert "2 ids occurred more than once and were made unique (a-3, a-4)" in caplog.text


def test_one_warning_for_a_bos_in_the_text(tmp_path: Path, caplog) -> None:
    records = [record | {"prompt": "<s>" + record["prompt"]} for record in GOOD]
    with caplog.at_level(logging.WARNING):
        found = prepare_rows([file_of(tmp_path, records)], with_bos(), DataOptions())
    assert [r.message for r in caplog.records] == [
        "train: 40 rows hold the BOS token in their text; only one is kept, at the start "
        "(train-000000, train-000001, train-000002, train-000003, train-000004)"
    ]
    assert found.audit.rules["bos"] == "<s>"


def test_cut_answers_and_moved_boundaries_are_counted(tmp_path: Path) -> None:
    records = [
        {"prompt": "the sky i", "chosen": "s blue.", "rejected": "s green."},
        {"prompt": "the sky", "chosen": " is blue." * 9, "rejected": " is red."},
    ]
    audit = prepare(tmp_path, records, max_length=12, truncate="response").audit
    assert audit.notes == {"boundary_moved": 1, "truncated_chosen": 1, "end_lost_on_one_side": 1}
    assert audit.moved == 2
    lines = " ".join(audit.lines())
    assert "(2 characters)" in lines
    assert "1 rows lost the end of the answer on one side only, which favours one length (train-000001)." in lines


def test_lengths(tmp_path: Path) -> None:
    audit = prepare(
        tmp_path, [{"prompt": "the", "chosen": " sky is", "rejected": " sky"}, GOOD[0] | {"rejected": " is" * 9}]
    ).audit
    lengths = audit.to_json()["lengths"]
    assert lengths["chosen"]["max"] == max(len(ids) for ids in audit_rows(tmp_path, "chosen"))
    assert audit.longer_chosen == 0.5
    single = prepare(tmp_path, [{"prompt": "a", "completion": " b", "label": True}], responses="single").audit
    assert set(single.lengths) == {"prompt", "response"}
    assert single.longer_chosen is None


def audit_rows(tmp_path: Path, side: str) -> list[list[int]]:
    rows = prepare_rows([Source(str(tmp_path / "pairs.jsonl"))], plain(), DataOptions()).rows
    return [responses[("chosen", "rejected").index(side)] for responses in rows["responses"]]


def test_the_report_is_written_whole(tmp_path: Path) -> None:
    audit = prepare(tmp_path, GOOD + BAD[:1]).audit
    path = tmp_path / "run" / "data_report.json"
    write_report(path, [audit])
    assert json.loads(path.read_text("utf-8"))["train"] == json.loads(json.dumps(audit.to_json()))
    audit.write(path)
    assert [p.name for p in path.parent.iterdir()] == ["data_report.json"]


def test_a_second_run_reads_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(tmp_path, GOOD + BAD[:1])
    other = prepare(tmp_path, GOOD + BAD[:1], eos="never")

    def never(*_: Any) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(Encoder, "encode", never)
    again = prepare(tmp_path, GOOD + BAD[:1])
    assert again.rows.to_list() == first.rows.to_list()
    assert again.audit == first.audit
    assert other.audit.fingerprint != first.audit.fingerprint
    looser = prepare(tmp_path, GOOD + BAD[:1], max_lost=0.5)  # not among what decides rows
    assert looser.audit.fingerprint == first.audit.fingerprint
    with pytest.raises(AssertionError, match="encoded again"):
        prepare_rows([file_of(tmp_path, GOOD)], build(special=("<|x|>",)), DataOptions())


SCRIPT = """
import sys
from itertools import islice
from pathlib import Path
from prefopt.data import DataOptions, Source, prepare_rows
from prefopt.data.encode import Encoder
from tests.data.tokenizers import plain
Encoder.encode = None
found = prepare_rows([Source(sys.argv[1])], plain(), DataOptions(), cache=Path(sys.argv[2]))
print(found.audit.fingerprint, found.rows._fingerprint)
"""


def test_another_process_reads_the_cache(tmp_path: Path) -> None:
    source, root = file_of(tmp_path, GOOD), Path(__file__).parents[2]
    found = prepare_rows([source], plain(), DataOptions(), cache=tmp_path / "cache")
    command = [sys.executable, "-c", SCRIPT, source.path, str(tmp_path / "cache")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout
    assert said.split() == [found.audit.fingerprint, found.rows._fingerprint]


def test_several_processes_give_the_same_rows(tmp_path: Path) -> None:
    records = GOOD * 20
    one = prepare_rows([file_of(tmp_path, records)], plain(), DataOptions(), cache=tmp_path / "one")
    two = prepare_rows([file_of(tmp_path, records)], plain(), DataOptions(num_proc=2), cache=tmp_path / "two")
    assert two.rows.to_list() == one.rows.to_list()
    assert two.audit == one.audit
    broken = file_of(tmp_path, [GOOD[0], GOOD[0] | {"rejected": ["a", "b"]}])
    with pytest.raises(DataError, match=r"train-000001: the row has 2 rejected responses"):
        prepare_rows([broken], plain(), DataOptions(num_proc=2), cache=tmp_path / "three")


def test_sources_with_weights_are_seen_that_often(tmp_path: Path) -> None:
    a, b = file_of(tmp_path, GOOD[:10], "a.jsonl"), file_of(tmp_path, GOOD[10:30], "b.jsonl")
    sources = [Source(a.path, weight=2.5), Source(b.path, weight=0.5)]
    found = prepare_rows(sources, plain(), DataOptions(), seed=1)
    ids = found.rows["id"][:]
    assert sum(i.startswith("train-") for i in ids) == 25
    assert sum(i.startswith("train1-") for i in ids) == 10
    assert {ids.count(f"train-{i:06d}") for i in range(10)} == {2, 3}
    assert found.audit.to_json()["sources"][1] == {"path": b.path, "weight": 0.5, "records": 20, "rows_per_epoch": 10}
    again = prepare_rows(sources, plain(), DataOptions(), seed=1)
    assert again.rows["id"][:] == ids
    assert again.audit.fingerprint == found.audit.fingerprint
    assert prepare_rows(sources, plain(), DataOptions(), seed=2).rows["id"][:] != ids


def test_a_weight_that_draws_no_row_is_refused(tmp_path: Path) -> None:
    a, b = file_of(tmp_path, GOOD[:10], "a.jsonl"), file_of(tmp_path, GOOD, "b.jsonl")
    message = r"a\.jsonl: the weight 0\.01 draws none of the 10 rows that can be used; 0\.1 draws one\."
    for sources in ([Source(a.path, weight=0.01)], [b, Source(a.path, weight=0.01)]):
        with pytest.raises(DataError, match=message):
            prepare_rows(sources, plain(), DataOptions())
    assert len(prepare_rows([Source(a.path, weight=0.1)], plain(), DataOptions()).rows) == 1


def test_a_table_with_binary_columns_and_taken_names(tmp_path: Path) -> None:
    table = Dataset.from_list(
        [GOOD[0] | {"id": 5, "length": 3, "masks": "x"}, GOOD[1] | {"id": 6, "length": 4, "masks": "y"}]
    )
    table = table.add_column("picture", [None, None], feature=datasets.Image())
    table.save_to_disk(tmp_path / "saved")
    found = prepare_rows([Source(str(tmp_path / "saved"))], plain(), DataOptions())
    assert found.rows["id"][:] == ["5", "6"]
    assert json.loads(found.rows[0]["extra"]) == {"length": 3, "masks": "x"}
    assert found.audit.unused == ("length", "masks", "picture")
    before = {p.name for p in (tmp_path / "saved").iterdir()}
    prepare_rows([Source(str(tmp_path / "saved"))], plain(), DataOptions(eos="never"))
    assert {p.name for p in (tmp_path / "saved").iterdir()} == before  # nothing is written beside the user's data


def test_real_records(tmp_path: Path) -> None:
    with real_data("gsm8k_pairs.jsonl").open(encoding="utf-8") as file:
        source = file_of(tmp_path, [json.loads(line) for line in islice(file, 300)])
    found = prepare_rows([source], plain(), DataOptions(), name="pairs")
    assert found.audit.read == 300
    assert found.audit.kept == len(found.rows) == 300 - sum(found.audit.counts.values())
    single = prepare_rows([source], plain(), DataOptions(responses="single"))
    assert {len(responses) for responses in single.rows[:100]["responses"]} == {1}


def test_no_sources() -> None:
    with pytest.raises(DataError, match="there is no source of records"):
        prepare_rows([], plain(), DataOptions())


def of_words(*known: str) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words; all others are one token."""
    vocabulary = {word: number for number, word in enumerate(("<unk>", "<end>", *known))}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<end>")


def test_responses_of_mostly_unknown_tokens_are_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [
        {"id": "known", "prompt": "say", "chosen": " sky is blue", "rejected": " sky is green"},
        {"id": "half", "prompt": "say", "chosen": " sky is this that", "rejected": " sky"},
        {"id": "other", "prompt": "say", "chosen": " sky is", "rejected": " this that there sky"},
    ]
    with caplog.at_level(logging.WARNING):
        found = prepare_rows([file_of(tmp_path, records)], of_words("sky", "is", "blue", "green"), DataOptions())
    assert (found.audit.kept, found.audit.notes["unknown_tokens"]) == (3, 1)
    assert "1 rows have a response of mostly unknown tokens" in caplog.text
    assert "(other)" in caplog.text


def test_a_tokenizer_that_knows_no_word_is_refused_however_many_rows_may_be_lost(tmp_path: Path) -> None:
    source = file_of(tmp_path, [{"prompt": "say", "chosen": "sky is", "rejected": "no"}] * 5)
    with pytest.raises(DataError, match=r"all 5 rows have a response of mostly unknown tokens.* does not fit these"):
        prepare_rows([source], of_words("blue"), DataOptions(max_lost=1.0))
