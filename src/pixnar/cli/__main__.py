"""python -m pixnar.cli is pixnar."""

from pixnar.cli import main

if __name__ == "__main__":
    main()
