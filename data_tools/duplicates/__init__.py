"""Duplicates: exact by hash, near ones by MinHash, and overlap with a given set of texts by n-grams."""

from data_tools.duplicates.minhash import signature
from data_tools.duplicates.near import NearIndex
from data_tools.duplicates.ngrams import NgramSet
from data_tools.duplicates.shingles import digest, jaccard, shingles, tokens
from data_tools.duplicates.table import HashTable

__all__ = ["HashTable", "NearIndex", "NgramSet", "digest", "jaccard", "shingles", "signature", "tokens"]
