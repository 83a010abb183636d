"""The raw files of every data set, with the published content where PyG would unpickle them."""

from __future__ import annotations

from secure_fedgraph.graph.data.sources import Raw

_PARTS = ("allx", "ally", "graph", "test.index", "tx", "ty", "x", "y")
# In the order of _PARTS, from kimiyoung/planetoid at af6abf468a77.
_SHA256 = {
    "Cora": (
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    ),
    "CiteSeer": (
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    ),
    "PubMed": (
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    ),
}


def _planetoid(name: str) -> Raw:
    files = tuple(f"ind.{name.lower()}.{part}" for part in _PARTS)
    sha256 = dict(zip(files, _SHA256[name], strict=True))
    return Raw("node", "planetoid", f"{name}/raw", files, "Planetoid", name, sha256)


def _tu(name: str, *more: str) -> Raw:
    files = tuple(f"{name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", *more))
    return Raw("graph", "tu", f"{name}/raw", files, "TUDataset", name)


def _heterophilous(name: str) -> Raw:
    file = name.lower().replace("-", "_")
    return Raw("node", "heterophilous", f"{file}/raw", (f"{file}.npz",), "HeterophilousGraphDataset", name)


RAW = {
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "dblp": Raw("node", "citation_full", "dblp/raw", ("dblp.npz",), "CitationFull", "DBLP"),
    "cora_ml": Raw("node", "citation_full", "cora_ml/raw", ("cora_ml.npz",), "CitationFull", "Cora_ML"),
    "coauthor-cs": Raw("node", "coauthor", "CS/raw", ("ms_academic_cs.npz",), "Coauthor", "CS"),
    "tolokers": _heterophilous("Tolokers"),
    "questions": _heterophilous("Questions"),
    "minesweeper": _heterophilous("Minesweeper"),
    "roman-empire": _heterophilous("Roman-empire"),
    "amazon-ratings": _heterophilous("Amazon-ratings"),
    "proteins": _tu("PROTEINS", "node_labels", "node_attributes"),
    "dd": _tu("DD", "node_labels"),
    "imdb-binary": _tu("IMDB-BINARY"),
    "mutag": _tu("MUTAG", "node_labels", "edge_labels"),
    "bbbp": Raw("graph", "molecule_net", "bbbp/raw", ("BBBP.csv",), "MoleculeNet", "BBBP"),
    "ciao": Raw("ratings", "ciao", "fedgraphnn", ("graph.txt", "user.dict", "item.dict", "category.dict")),
    "venice": Raw(
        "relations",
        "herigraph_venice_partial",
        "raw",
        ("A_SOC.npz", "A_SPA.npz", "A_TEM.npz", "A_simp.npz", "labels.npz", "train_val_test_idx.npz"),
    ),
}
