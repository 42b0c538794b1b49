"""`python -m prefopt ...`, which is also what `accelerate launch -m prefopt ...` starts."""

from prefopt.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
