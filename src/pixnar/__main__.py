"""python -m pixnar is pixnar: what torchrun starts, once per process."""

from pixnar.cli import main

if __name__ == "__main__":
    main()
