"""One of n equal parts of a file, for runs side by side."""

from dataclasses import dataclass

from data_tools.records import DataToolsError


@dataclass(frozen=True)
class Shard:
    """Part `index` (from 1) of `count`: every count-th record of the input."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """ "2/4" is the second of four. Raises: `DataToolsError` for anything else."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise DataToolsError(f"--shard must be i/n with i from 1 to n, for instance 1/4; got '{text}'.")
        return cls(int(index), int(count))

    def takes(self, place: int) -> bool:
        """Whether the record at a place (from 0) belongs to this part."""
        return place % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"
