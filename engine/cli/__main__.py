"""`python -m laneway.engine.cli`."""

from laneway.engine.cli import main

if __name__ == "__main__":
    main()
