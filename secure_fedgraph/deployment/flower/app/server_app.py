"""The server's end of the app: it runs the federation's rounds over the grid that Flower hands it."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.deployment.flower.app.run import run_over

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs a federation to its end. What it needs stands in the run's configuration."""
    try:
        run_over(grid, context.run_config, lambda line: print(line, flush=True))
    except SecureFedGraphError as error:
        # the line for people; Flower prints a traceback below it, and keeps the error as the run's status
        print(f"secure-fedgraph: {error}", flush=True)
        raise error.with_traceback(None) from None
