"""Language models behind one protocol: recorded answers, a model on this machine, any OpenAI-compatible server."""

from data_tools.generators.journal import Journal, Journaled
from data_tools.generators.options import GeneratorOptions, files_read, journal_path, open_generator, register_generator
from data_tools.generators.recorded import Recorded
from data_tools.generators.request import (
    Answer,
    Generator,
    GenFailure,
    GenReply,
    GenRequest,
    GenResult,
    generate,
    seed_of,
)
from data_tools.generators.server import Server, ServerSettings
from data_tools.generators.texts import Continuations

__all__ = [
    "Answer",
    "Continuations",
    "GenFailure",
    "GenReply",
    "GenRequest",
    "GenResult",
    "Generator",
    "GeneratorOptions",
    "Journal",
    "Journaled",
    "Recorded",
    "Server",
    "ServerSettings",
    "files_read",
    "generate",
    "journal_path",
    "open_generator",
    "register_generator",
    "seed_of",
]
