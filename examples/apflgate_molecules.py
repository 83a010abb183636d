"""Personal models beside a shared one on molecules, and how well they do on each owner's own.

Three methods that share a file: APFL (personal models), FedGATE (gradient tracking), APFLGate (both). The
server only ever opens the sum of the updates; tracking terms, personal models and their share stay at home.
"""

from __future__ import annotations

import secure_fedgraph as sfg
from secure_fedgraph.protocol.transcript import everything

SETTINGS = {"hidden": (16, 16), "learning_rate": 0.2, "local_steps": 10}

if __name__ == "__main__":
    federation = sfg.federate(
        "synthetic-molecules",
        clients=4,
        partition="dirichlet",
        seed=0,
        split={"concentration": 2.0},
        graphs=240,
    )
    print("training graphs:", *federation.facts["partition"]["training"])
    for kind in (sfg.Apfl, sfg.FedGate, sfg.ApflGate):
        run = sfg.train(
            kind(**SETTINGS), federation, sfg.policies.masked(), rounds=8, seed=0, keep=everything
        )
        read = {name for u in run.transcript.view("server").uploads("update") for name in u.clients}
        print(f"{kind.name:9} pooled AUC {run.accuracy['auc']:.3f}; the server read {len(read)} of 4 updates")
    print("channels of apflgate:", *(f"{c.name} ({c.reveal.value})" for c in sfg.ApflGate().in_use))
