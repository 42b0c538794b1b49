"""The small trained models that ship inside the package, named `demo:...` in recipes."""

from pathlib import Path

from prefopt.errors import ConfigError, did_you_mean

DEMO_PREFIX = "demo:"
DEMO_MODELS = ("tiny-math", "tiny-math-base")


def is_demo(spec: str) -> bool:
    """Whether a model name asks for a shipped model."""
    return spec.startswith(DEMO_PREFIX)


def demo_model_path(spec: str) -> Path:
    """The folder of a shipped model, for instance of `demo:tiny-math`: config, weights, tokenizer, chat template.

    Raises: ConfigError for a name that does not exist, and for a shipped model whose files are missing (a checkout in
    which `make tiny-math` has not been run).
    """
    name = spec.removeprefix(DEMO_PREFIX)
    if not is_demo(spec) or name not in DEMO_MODELS:
        known = [DEMO_PREFIX + model for model in DEMO_MODELS]
        raise ConfigError(
            f"unknown demonstration model '{spec}'.{did_you_mean(spec, known)} Known: {', '.join(known)}."
        )
    folder = Path(__file__).parent / name
    if not (folder / "config.json").is_file():
        raise ConfigError(f"the files of '{spec}' are missing from {folder}; `make tiny-math` builds them.")
    return folder
