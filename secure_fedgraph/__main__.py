"""``python -m secure_fedgraph``: the command of that name."""

from secure_fedgraph.cli.main import main

if __name__ == "__main__":
    main(prog_name="secure-fedgraph")
