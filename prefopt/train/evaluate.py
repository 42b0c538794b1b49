"""Answer accuracy: generate an answer to every row that carries one, and compare."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from data_tools.answers import final_answer, same_answer
from prefopt.train.generate import generate

if TYPE_CHECKING:
    from prefopt.data.sampler import Rows
    from prefopt.train.trainer import PreferenceTrainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerEvaluation:
    """Metrics `answer_accuracy` (share of samples whose final answer is the row's) and `answer_missing` (no final
    answer found).

    Rows without an `answer` are left out; a set without any gives no metric. Samples go to the run's `samples.jsonl`.
    `texts` of samples kept per evaluation is capped by `keep`.
    """

    max_new_tokens: int = 128
    samples: int = 1
    temperature: float = 0.0
    batch_size: int = 64
    keep: int = 64

    def __call__(self, trainer: PreferenceTrainer, rows: Rows, prefix: str) -> dict[str, float]:
        world, rank = trainer.args.world_size, trainer.args.process_index
        if trainer.sharding is not None:  # one process cannot run the model alone, so all answer everything
            world, rank = 1, 0
        with_answer = [i for i in range(len(rows)) if rows[i].get("answer") is not None]
        if not with_answer or trainer.processing_class is None:
            return {}
        mine = [rows[i] for i in with_answer[rank::world]]
        logger.info("%s: generating %d answers", prefix, len(with_answer) * self.samples)
        texts = generate(
            trainer.model,
            trainer.processing_class,
            [row["prompt_ids"] for row in mine],
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            samples=self.samples,
            seed=trainer.args.seed + rank,
            batch_size=self.batch_size,
        )
        judged = [self._judge(trainer, row, prefix, found) for row, found in zip(mine, texts, strict=True)]
        if trainer.run is not None and trainer.is_world_process_zero():
            trainer.run.append_samples(line for lines in judged[: self.keep] for line in lines)
        flat = [line for lines in judged for line in lines]
        totals = torch.tensor(
            [sum(line["right"] for line in flat), sum(line["found"] is None for line in flat), len(flat)],
            dtype=torch.float64,
            device=trainer.args.device,
        )
        right, missing, count = trainer.sum_over_ranks(totals).tolist()
        return {"answer_accuracy": right / count, "answer_missing": missing / count}

    def _judge(
        self, trainer: PreferenceTrainer, row: dict[str, Any], prefix: str, texts: list[str]
    ) -> list[dict[str, Any]]:
        lines = []
        for text in texts:
            found = final_answer(text)
            right = found is not None and same_answer(found, row["answer"])
            place = {"step": trainer.state.global_step, "set": prefix, "id": row["id"]}
            lines.append({**place, "text": text, "found": found, "answer": row["answer"], "right": right})
        return lines
