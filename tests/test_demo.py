"""The models and the data that ship with the package, and the scripts that rebuild them."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools.answers import final_answer
from data_tools.problems import make_problems
from data_tools.records import read_records
from prefopt.demo import DEMO_MODELS, demo_model_path, is_demo
from prefopt.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "recipes" / "demo"
DATA = ROOT / "recipes" / "data" / "tiny-math"

with_models = pytest.mark.skipif(
    not all((ROOT / "prefopt" / "demo" / name / "model.safetensors").is_file() for name in DEMO_MODELS),
    reason="the demonstration models are not built: make tiny-math",
)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The modules of recipes/demo, which import each other as scripts do."""
    sys.path.insert(0, str(RECIPES))
    try:
        names = ("start_model", "splits", "measure", "make_pairs", "build", "control")
        yield SimpleNamespace(**{name: _import(name) for name in names})
    finally:
        sys.path.remove(str(RECIPES))


def _import(name: str) -> ModuleType:
    return __import__(name)


@pytest.fixture(scope="module")
def tokenizer(scripts: Any) -> Any:
    return scripts.start_model.make_tokenizer()


def test_names_of_the_shipped_models() -> None:
    assert is_demo("demo:tiny-math")
    assert not is_demo("tiny-math")


@pytest.mark.parametrize("spec", ["demo:tiny-maths", "demo:", "demo:../../etc", "tiny-math", "demo:tiny-math/"])
def test_an_unknown_model_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"unknown demonstration model '{spec}'")):
        demo_model_path(spec)


def test_a_misspelt_model_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=re.escape("Did you mean 'demo:tiny-math'?")):
        demo_model_path("demo:tiny-mth")


@given(text=st.text())
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    kept = "".join(character for character in text if not "\ud800" <= character <= "\udfff")
    assert tokenizer.decode(tokenizer(kept).input_ids) == kept


def test_every_byte_has_a_token(tokenizer: Any) -> None:
    text = "".join(map(chr, range(0x500))) + "日本 🎉"
    assert tokenizer.decode(tokenizer(text, verbose=False).input_ids) == text
    single = [token for token in tokenizer.get_vocab() if len(token) == 1]
    assert len(single) == 256
    assert tokenizer.unk_token is None


def test_digits_are_split_and_words_are_whole(tokenizer: Any) -> None:
    assert tokenizer.tokenize("Tom has 1234 pencils.")[-8:] == ["Ġhas", "Ġ", "1", "2", "3", "4", "Ġpencils", "."]
    assert 400 <= len(tokenizer) <= 700


def test_end_and_padding_are_different_tokens(tokenizer: Any) -> None:
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)
    assert tokenizer.bos_token is None


def test_chat_template(tokenizer: Any) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": "7"},
        {"role": "user", "content": "Sure?"},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>Be brief.<|user|>How many?<|assistant|>7<|end|><|user|>Sure?<|assistant|>"
    marked = tokenizer.apply_chat_template(turns, return_assistant_tokens_mask=True, return_dict=True)
    scored = [token for token, mark in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if mark]
    assert tokenizer.decode(scored) == "7<|end|>"
    with pytest.raises(Exception, match="Unknown role 'tool'"):
        tokenizer.apply_chat_template([{"role": "tool", "content": ""}], tokenize=False)


def test_start_model_is_small_and_fixed_by_its_seed(scripts: Any, tokenizer: Any) -> None:
    make = scripts.start_model.make_model
    weights = [make(tokenizer, seed).model.embed_tokens.weight for seed in (0, 0, 1)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])
    model = make(tokenizer)
    assert 0.8e6 < model.num_parameters() < 1.0e6
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_problems_fit_the_context_of_the_recipes(tokenizer: Any) -> None:
    texts = [f"<|user|>{p.prompt}<|assistant|>{p.solution}<|end|>" for p in make_problems(1000, seed=2)]
    assert max(len(tokenizer(text).input_ids) for text in texts) < 256


def test_splits_share_no_prompt(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tuple(replace(split, size=30, seed=5) for split in scripts.splits.SPLITS)  # one seed: all would be equal
    monkeypatch.setattr(scripts.splits, "SPLITS", small)
    made = scripts.splits.make_splits()
    prompts = [problem.prompt for problems in made.values() for problem in problems]
    assert len(prompts) == len(set(prompts)) == 30 * len(small)


@with_models
def test_shipped_sets_are_those_of_their_seeds(scripts: Any) -> None:
    splits = scripts.splits
    made = {}
    taken: list[str] = []
    for split in (splits.HELDOUT, splits.TUNING):
        made[split.name] = make_problems(split.size, seed=split.seed, exclude=taken)
        taken += [problem.prompt for problem in made[split.name]]
        rows = list(read_records(DATA / f"{split.name}.jsonl"))
        wrong = [row.pop("rejected") for row in rows]
        assert rows == splits.evaluation_rows(made[split.name])
        for text, row in zip(wrong, rows, strict=True):
            assert final_answer(text) not in (None, row["answer"])
    assert splits.HELDOUT.size >= 500
    assert splits.TUNING.size >= 300
    assert splits.SPLITS[0] is splits.HELDOUT  # made first, so that no later change moves it


@pytest.mark.parametrize(
    ("solution", "true"),
    [
        ("Step 1: 3 + 4 = 7.\nThe answer is 7.", True),
        ("3 + 4 = 7, 7 / 7 = 1, 2 - 5 = 3", False),
        ("8 / 3 = 2", False),
        ("8 / 0 = 0", False),
        ("The answer is 7.", False),
    ],
)
def test_true_equations(scripts: Any, solution: str, true: bool) -> None:
    assert scripts.measure.equations_are_true(solution) is true


def test_pairs_have_the_nearest_right_answer(scripts: Any) -> None:
    row = {"id": "p", "prompt": "?", "answer": "7"}
    first, second = "Adding gives 3 + 4 = 7. The answer is 7.", "Then 3 + 4 = 7. The answer is 7."
    wrong, cut = "Then 3 + 4 = 8. The answer is 8.", "Then 3 + 4 ="
    pairs = scripts.make_pairs.pairs_of(row, [first, wrong, second, wrong, cut], limit=2)
    assert pairs == [{"id": "p-0", "prompt": "?", "chosen": second, "rejected": wrong, "answer": "7"}]
    assert scripts.make_pairs.pairs_of(row, [wrong, cut], limit=2) == []
    assert scripts.make_pairs.pairs_of(row, [first, second], limit=2) == []


def test_flipping_swaps_half_of_the_labels(scripts: Any) -> None:
    pairs = [{"id": str(n), "chosen": "right", "rejected": "wrong"} for n in range(100)]
    flipped = scripts.control.flip_half(pairs, seed=1)
    assert [pair["id"] for pair in flipped] == [pair["id"] for pair in pairs]
    assert sum(pair["chosen"] == "wrong" and pair["rejected"] == "right" for pair in flipped) == 50
    assert flipped == scripts.control.flip_half(pairs, seed=1) != scripts.control.flip_half(pairs, seed=2)
    assert all(pair["chosen"] == "right" for pair in pairs)


def test_checkpoint_nearest_to_the_aim_is_chosen(scripts: Any) -> None:
    build, measure = scripts.build, scripts.measure

    def candidate(name: str, accuracy: float) -> Any:
        return build.Candidate(name, measure.Greedy(100, accuracy, 0.0, 1.0, 0.0))

    goal = build.Goal(low=0.5, high=0.6, aim=0.55)
    found = [
        candidate("a", 0.40),
        candidate("b", 0.53),
        candidate("c", 0.56),
        candidate("d", 0.56),
        candidate("e", 0.7),
    ]
    assert build.choose(found, goal).checkpoint == "d"
    with pytest.raises(SystemExit, match=r"no checkpoint between 0\.5 and 0\.6.*a 0\.400"):
        build.choose(found[:1], goal)


@with_models
@pytest.mark.parametrize("name", DEMO_MODELS)
def test_shipped_models_load_with_the_tokenizer_of_the_script(scripts: Any, tokenizer: Any, name: str) -> None:
    model, shipped = scripts.measure.load(demo_model_path(f"demo:{name}"))
    assert shipped.get_vocab() == tokenizer.get_vocab()
    assert shipped.chat_template == tokenizer.chat_template
    assert model.get_input_embeddings().num_embeddings == len(shipped)
    assert model.generation_config.eos_token_id == shipped.eos_token_id


@with_models
def test_shipped_pairs_are_labelled_by_the_answer() -> None:
    pairs = list(read_records(DATA / "pairs.jsonl"))
    apart = {row["prompt"] for name in ("heldout", "tuning") for row in read_records(DATA / f"{name}.jsonl")}
    assert 300 <= len(pairs) <= 1000
    assert len({pair["id"] for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert final_answer(pair["chosen"]) == pair["answer"]
        assert final_answer(pair["rejected"]) not in (None, pair["answer"])
        assert pair["prompt"] not in apart


@with_models
@pytest.mark.slow
@pytest.mark.parametrize(("name", "low", "high"), [("tiny-math-base", 0.80, 0.90), ("tiny-math", 0.50, 0.60)])
def test_shipped_models_solve_as_many_problems_as_documented(scripts: Any, name: str, low: float, high: float) -> None:
    measured = scripts.measure.greedy(demo_model_path(f"demo:{name}"), list(read_records(DATA / "heldout.jsonl")))
    assert low <= measured.accuracy <= high


@with_models
@pytest.mark.slow
def test_samples_mix_right_and_wrong_and_mistakes_are_of_two_kinds(scripts: Any) -> None:
    problems = list(read_records(DATA / "heldout.jsonl"))[:300]
    measured = scripts.measure.sampled(demo_model_path("demo:tiny-math"), problems, samples=6)
    assert measured.mixed > 0.5
    assert 0.33 <= measured.wrong_with_true_equations < 0.9


@with_models
@pytest.mark.slow
def test_quickstart_learns_from_its_labels_and_only_from_them(scripts: Any, tmp_path: Path) -> None:
    outcomes = scripts.control.run_all(tmp_path, seeds=(0, 1, 2))
    assert len(outcomes) == 6
    for outcome in outcomes:
        if outcome.labels == "given":
            assert outcome.points > 8, scripts.control.table(outcomes)
        else:
            assert outcome.points < 8, scripts.control.table(outcomes)
