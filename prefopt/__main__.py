"""`python -m prefopt ...`, which is also what `accelerate launch -m prefopt ...` starts."""

from prefopt.cli import run

if __name__ == "__main__":
    run()
