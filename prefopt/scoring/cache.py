"""Reference log-probabilities in files: computed once, read by every later run and every loss.

A cache is a folder: `manifest.json` says whose values these are, `part-*.safetensors` hold them, per token in float32.
A response is found by its content, a digest of prompt, response and mask as token ids; so one cache serves any data
set, order, batch and loss, and grows when more responses are added. What was computed before a crash stays.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from prefopt.errors import ConfigError, RunError
from prefopt.runs import read_json, write_bytes, write_json
from prefopt.scores import TokenStats
from prefopt.scoring.layout import Batch

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_FORMAT = 1
_PART_VALUES, _PART_SECONDS = 2**22, 60.0  # what a crash may cost

Identity = Mapping[str, Any]
"""What decides a reference's values beside the token ids: model, adapter, tokenizer, template, dtypes, backend."""

Keys = NDArray[np.uint64]
"""Digests of responses `[N, 2]`."""


class Piece(NamedTuple):
    """A response behind its prompt, as token ids, and which of its tokens are scored."""

    prompt: Sequence[int]
    response: Sequence[int]
    mask: Sequence[bool]


def keys_of(pieces: Iterable[Piece]) -> Keys:
    """A digest per response."""
    return _stacked([_digest(len(p.prompt), [*p.prompt, *p.response], p.mask) for p in pieces])


def keys_of_batch(batch: Batch) -> Keys:
    """A digest per response of the batch that has a scored token, in its order."""
    ids, mask = batch["input_ids"].cpu().numpy(), batch["mask"].cpu().numpy()
    prompts, ends = batch["prompt_lengths"].tolist(), batch["attention_mask"].sum(-1).cpu().numpy()
    found = []
    for b, r in np.argwhere(mask.any(-1)):
        end = ends[b, r]
        found.append(_digest(prompts[b], ids[b, r, :end], mask[b, r, : end - prompts[b]]))
    return _stacked(found)


def _digest(prompt: int, ids: Any, mask: Any) -> bytes:
    content = np.asarray([prompt], np.int32).tobytes() + np.asarray(ids, np.int32).tobytes()
    return hashlib.blake2b(content + np.asarray(mask, np.bool_).tobytes(), digest_size=16).digest()


def _stacked(digests: Sequence[bytes]) -> Keys:
    return np.array([np.frombuffer(digest, np.uint64) for digest in digests], np.uint64).reshape(-1, 2)


# ------------------------------------------------------------------------------------------------------------ reading


class _Part(NamedTuple):
    """An open file: `keys` `[N, 2]`, and where in its values each response begins and ends, `bounds` `[N + 1]`."""

    path: Path
    values: Any
    keys: Keys
    bounds: NDArray[np.int64]


@dataclass(frozen=True)
class Cache:
    """An open cache. Values stay on the disk, mapped; in memory are the keys, 28 bytes a response."""

    folder: Path
    identity: dict[str, Any]
    parts: tuple[_Part, ...] = ()
    _keys: Keys = field(default_factory=lambda: np.empty((0, 2), np.uint64), repr=False)
    _places: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64), repr=False)

    @classmethod
    def open(cls, folder: Path, identity: Identity | None = None) -> Cache:
        """Open a cache, and with `identity` check that it belongs to this reference.

        Raises: `ConfigError` for a folder that is no cache, a cache of another reference, which names the fields that
        differ, and a damaged part. Nothing is changed.
        """
        known = _manifest(folder)
        if identity is not None:
            _check_identity(folder, known, _plain(identity))
        parts = tuple(_opened(path, known) for path in sorted(folder.glob("part-*.safetensors")))
        keys = np.concatenate([part.keys for part in parts]) if parts else np.empty((0, 2), np.uint64)
        places = [np.stack([np.full(len(p.keys), n), np.arange(len(p.keys))], 1) for n, p in enumerate(parts)]
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        order = order[np.append(True, (keys[order[1:]] != keys[order[:-1]]).any(-1))[: len(order)]]  # each once
        stand = np.concatenate(places) if places else np.empty((0, 2), np.int64)
        return cls(folder, known, parts, keys[order], stand[order])

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Where each response stands, -1 for one that is not here."""
        if not len(self):
            return np.full(len(keys), -1)
        at = np.searchsorted(self._keys[:, 0], keys[:, 0]).clip(max=len(self) - 1)
        return np.where((self._keys[at] == keys).all(-1), at, -1)

    def read(self, found: NDArray[np.int64]) -> NDArray[np.float32]:
        """The values of responses that `find` found, one behind the other."""
        values = []
        for number, row in self._places[found]:
            part = self.parts[number]
            values.append(part.values[part.bounds[row] : part.bounds[row + 1]])
        return np.concatenate(values) if values else np.empty(0, np.float32)


def _manifest(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        empty = not folder.is_dir() or not any(folder.iterdir())
        makes = "`prefopt reference RECIPE` makes one there." if empty else _ANEW
        raise ConfigError(f"{folder} holds no cache of reference log-probabilities: it has no {MANIFEST}. {makes}")
    try:
        content = read_json(folder / MANIFEST)
        found = {"format": content["format"], "reference": dict(content["reference"])}
    except (RunError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder / MANIFEST} is not the manifest of a reference cache ({error}). {_ANEW}") from None
    if found["format"] != _FORMAT:
        raise ConfigError(f"{folder} has format {found['format']}, and this version reads format {_FORMAT}.")
    return dict(found["reference"])


def _check_identity(folder: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    names = [name for name in {**wanted, **known} if known.get(name) != wanted.get(name)]
    if names:
        gaps = "; ".join(f"{name} is {known.get(name)} there and {wanted.get(name)} here" for name in names)
        raise ConfigError(f"the reference cache {folder} belongs to another reference: {gaps}. It was left alone.")


_REFILLED = "`prefopt reference` fills the gap."
_ANEW = "It was left alone; remove the folder, and `prefopt reference RECIPE` makes a cache there."


def _opened(path: Path, identity: Mapping[str, Any]) -> _Part:
    try:
        file = safe_open(path, framework="numpy")
        about = file.metadata() or {}
        keys, bounds = file.get_tensor("keys"), file.get_tensor("bounds")
        values = file.get_slice("values")
        whole = about["checksum"] == _checksum(keys, bounds, values[:])
    except (OSError, SafetensorError, KeyError) as error:
        raise ConfigError(
            f"{path} is damaged or no part of a reference cache ({error}). Remove it; {_REFILLED}"
        ) from None
    if not whole:
        raise ConfigError(f"{path} is damaged: its checksum differs. Remove it; {_REFILLED}")
    try:
        belongs = json.loads(about["reference"]) == identity
    except (KeyError, ValueError):
        raise ConfigError(f"{path} is damaged: its header cannot be read. Remove it; {_REFILLED}") from None
    if not belongs:
        raise ConfigError(f"{path} belongs to another reference than its folder's {MANIFEST}. It was left alone.")
    return _Part(path, values, keys, bounds)


def _checksum(*arrays: NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class CachedReference:
    """Per-token values from a cache: no second model, and no forward pass. `kind` is what the values came from."""

    cache: Cache
    kind: str = "model"
    identity: dict[str, Any] = field(default_factory=dict)

    def __call__(self, batch: Batch, *, distributions: bool = False) -> TokenStats:
        """Raises: `RunError` for a response that is not in the cache."""
        if distributions:
            raise ConfigError("a cache holds log-probabilities of tokens, not distributions; set reference.cache: off.")
        found = self.cache.find(keys_of_batch(batch))
        if (found < 0).any():
            raise RunError(
                f"{int((found < 0).sum())} of {len(found)} responses of a batch are not in the reference cache "
                f"{self.cache.folder}; `prefopt reference RECIPE` adds what is missing."
            )
        mask = batch["mask"]
        values = torch.from_numpy(self.cache.read(found)).to(mask.device)
        return TokenStats(torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, values))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.identity, "cache": str(self.cache.folder)}


# ------------------------------------------------------------------------------------------------------------ writing


def prepare(folder: Path, identity: Identity, *, about: Mapping[str, Any] | None = None) -> Cache:
    """The cache of this reference in a folder, new or begun. `about` are remarks for its readers.

    Raises: `ConfigError` for a folder that holds something else, or another reference's cache.
    """
    if (folder / MANIFEST).exists():
        return Cache.open(folder, identity)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"reference.cache: {folder} is a file, and a cache is a folder.")
    if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds something else than a reference cache; it was left alone.")
    try:
        write_json(folder / MANIFEST, {"format": _FORMAT, "reference": _plain(identity), "about": dict(about or {})})
    except OSError as error:
        raise ConfigError(f"reference.cache: {folder} cannot be made: {error.strerror}.") from error
    return Cache.open(folder, identity)


def fill(
    cache: Cache,
    batches: Iterable[Batch],
    reference: Callable[[Batch], TokenStats],
    *,
    done: Callable[[int], None] = lambda _: None,
) -> int:
    """Compute and write what these batches hold that the cache does not; returns the number of responses added.

    Written in parts, each whole or not at all: whatever ends this, the parts stay, and the next call goes on. Several
    processes may write to one folder. `done` is told the number of rows of each batch. A value that is not finite is
    kept, so that training says of it what it says of a live one, and the responses that have one are counted aloud.
    """
    keys: list[Keys] = []
    values: list[NDArray[np.float32]] = []
    added, broken, since, computed = 0, 0, time.monotonic(), set[bytes]()
    for batch in batches:
        wanted = keys_of_batch(batch)
        missing = cache.find(wanted) < 0
        for place in np.flatnonzero(missing):
            key = wanted[place].tobytes()
            missing[place] = key not in computed
            computed.add(key)
        if missing.any():
            each = _each(reference(batch).logps, batch["mask"])
            keys.append(wanted[missing])
            values += [part for part, new in zip(each, missing, strict=True) if new]
            added += int(missing.sum())
            broken += sum(not np.isfinite(part).all() for part, new in zip(each, missing, strict=True) if new)
        done(len(batch["mask"]))
        if values and (time.monotonic() - since > _PART_SECONDS or sum(map(len, values)) > _PART_VALUES):
            _write(cache, keys, values)
            keys, values, since = [], [], time.monotonic()
    if values:
        _write(cache, keys, values)
    if broken:
        logger.warning("the reference gives %d responses a log-probability that is not finite.", broken)
    return added


def _each(logps: Tensor, mask: Tensor) -> list[NDArray[np.float32]]:
    """The scored values of each response that has any."""
    ends = mask.sum(-1)[mask.any(-1)].cumsum(0).cpu().numpy()
    return np.split(logps[mask].float().cpu().numpy(), ends[:-1])


def _write(cache: Cache, keys: Sequence[Keys], values: Sequence[NDArray[np.float32]]) -> None:
    bounds = np.cumsum([0, *map(len, values)], dtype=np.int64)
    tensors: dict[str, NDArray[Any]] = {
        "keys": np.concatenate(keys),
        "bounds": bounds,
        "values": np.concatenate(values),
    }
    about = {"checksum": _checksum(*tensors.values()), "reference": json.dumps(cache.identity)}
    name = hashlib.blake2b(tensors["keys"].data, digest_size=8).hexdigest()
    write_bytes(cache.folder / f"part-{name}.safetensors", save(tensors, metadata=about))


def _plain(identity: Identity) -> dict[str, Any]:
    return dict(json.loads(json.dumps(dict(identity))))


def largest_gap(cached: Tensor, live: Tensor, mask: Tensor) -> float:
    """The largest difference of a scored token, nats; infinite where only one of the two is a number."""
    gap = (cached - live)[mask].abs()
    both = ~(cached[mask].isfinite() | live[mask].isfinite())
    return float(gap.masked_fill(both, 0).nan_to_num(torch.inf).max()) if gap.numel() else 0.0
