"""FedEgo on one small generated graph: what the server reads of mashed ego-graphs, single and summed.

Offline, a few seconds. Under `plaintext` the server reads every client's mashes. With `mash="across"` the
b-th mashes of all clients are added up, which binds under masks: it reads mixtures of everybody's only. Under
masks FedEgo takes that form by itself, unless `mash` was set by hand.
"""

from __future__ import annotations

import secure_fedgraph as sfg

SMALL = {"hidden": (32, 32), "batch": 8, "mashes": 8, "learning_rate": 0.01}
RUNS = {
    "single mashes, plaintext": ("client", "egos", sfg.policies.plaintext()),
    "summed mashes, plaintext": ("across", "egos_across", sfg.policies.plaintext()),
    "summed mashes, masked": ("across", "egos_across", sfg.policies.masked()),
}


def main() -> None:
    """One row a run, then the refusal."""
    federation = sfg.federate(
        "synthetic-citation",
        clients=3,
        partition="label_skew",
        split={"local_tests": 20},
        nodes=300,
        features=60,
        seed=0,
    )
    for name, (mash, channel, policy) in RUNS.items():
        algorithm = sfg.FedEgo(mash=mash, **SMALL)
        run = sfg.train(algorithm, federation, policy, rounds=6, keep=lambda *_: True)
        scores = run.accuracy["best_on_test"]
        view = run.transcript.view("server")
        print(
            f"{name:25} global {scores['global']:.3f}, local {scores['local']:.3f}; the server reads "
            f"{len(view.uploads(channel))} uploads of single clients and {len(view.sums(channel))} sums"
        )
    try:
        sfg.train(sfg.FedEgo(mash="client", **SMALL), federation, sfg.policies.masked(), rounds=1)
    except sfg.errors.Refused as error:
        print(f"single mashes, masked     refused: {error}")


if __name__ == "__main__":
    main()
