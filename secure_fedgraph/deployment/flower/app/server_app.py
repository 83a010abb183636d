"""The server's end of the app: it runs the federation's rounds over the grid that Flower hands it."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from secure_fedgraph.deployment.flower.app.run import run_over

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs a federation to its end. What it needs stands in the run's configuration."""
    run_over(grid, context.run_config, lambda line: print(line, flush=True))
