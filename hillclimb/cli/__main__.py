"""`python -m hillclimb.cli`: the same as the `hillclimb` command."""

from hillclimb.cli.commands import main

if __name__ == "__main__":
    main(prog_name="hillclimb")
