"""An outsider with a released model: links from its answers, and whether a node was trained on.

Masks protect the way to the model and not the model: both attacks are as strong under `masked`. Noise in
training ends the second. Generated data, offline.
"""

from __future__ import annotations

from secure_fedgraph.attacks import LinkStealing, NodeMembership
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES, knowledge
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute, run_result

LINE = "{policy:10} {attack:20} AUC {value:.2f} [{low:.2f}, {high:.2f}], trivial {trivial:.2f}: {verdict}"


def main() -> None:
    """Both attacks under three policies."""
    for policy in ("plaintext", "masked", "local_dp"):
        experiment = Experiment(
            algorithm="fedsage",
            data="synthetic-citation",
            rounds=20,
            policy=policy,
            dataset={"nodes": 300, "features": 100},
            training={"learning_rate": 0.01},
            protection={"norm": 0.1, "multiplier": 1.0},
        )
        run = execute(experiment, None)
        finished = FinishedRun.of(run, experiment.seed, run_result(run, experiment))
        outsider = run.transcript.view()  # no party: not a message is in it
        for attack in (LinkStealing(), NodeMembership()):
            guess = attack.run(outsider, knowledge(attack, finished))
            score = JUDGES[guess.about](guess, finished).score
            print(
                LINE.format(
                    policy=policy,
                    attack=attack.id,
                    value=score.value,
                    low=score.low,
                    high=score.high,
                    trivial=score.baseline,
                    verdict=score.verdict,
                )
            )


if __name__ == "__main__":
    main()
