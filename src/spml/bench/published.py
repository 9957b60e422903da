"""Published figures, quoted from their sources and not run here.

All are test mAP in percent with ResNet-50 at 448 px. The paper compiles its comparison from several
sources; doubtful cells carry a note with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = ("voc", "coco", "nuswide", "cub")  # of the published tables
PAPER = "Chen et al., IJCAI 2024, Table 2"
PAPER_ABLATION = "Chen et al., IJCAI 2024, Table 3"
BOOSTLU = "results of Kim et al., CVPR 2023 (BoostLU)"
AEVLP = "results of AEVLP, ICCV 2025"
LARGE_LOSS = "Kim et al., CVPR 2022 (Large Loss)"
CRISP = "Liu et al., CRISP, later version"
VLPL = "VLPL, CVPRW 2024, and results of BoostLU"

COPIED = (
    "the cells of SMILE, word for word: most likely a slip; take SPLC on NUS and CUB as unknown"
)
EXCHANGED = (
    "LL-Ct and LL-Cp stand the other way round in CRISP's table, "
    "from which these cells seem to come"
)
TWO_SETTINGS = "ROLE with LinearInit on VOC and COCO, plain ROLE on NUS and CUB"
ROUNDED = "18.966 in CRISP's table, from which the other cells seem to come"


@dataclass(frozen=True)
class Quote:
    """A published test mAP in percent, with the reason to doubt it, if there is one."""

    mean: float
    deviation: float | None  # None if the source prints none
    source: str
    doubt: str = ""

    @property
    def text(self) -> str:
        """The figure as the source prints it."""
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


Cell = tuple[float, float] | None
TABLE_2: dict[str, tuple[Cell, Cell, Cell, Cell]] = {  # in the order of COLUMNS
    "an": ((85.89, 0.38), (64.92, 0.19), (42.49, 0.34), (18.66, 0.09)),
    "an_ls": ((87.55, 0.14), (67.07, 0.20), (43.62, 0.34), (16.45, 0.27)),
    "focal": ((87.59, 0.58), (68.79, 0.14), (47.00, 0.14), (19.80, 0.30)),
    "hill": ((87.71, 0.26), (71.43, 0.18), None, None),
    "splc": ((88.43, 0.34), (71.56, 0.12), (47.24, 0.17), (18.61, 0.14)),
    "ll_r": ((89.15, 0.16), (71.77, 0.15), (48.05, 0.07), (19.00, 0.02)),
    "ll_ct": ((88.97, 0.15), (71.20, 0.29), (48.00, 0.08), (19.31, 0.16)),
    "ll_cp": ((88.62, 0.23), (70.84, 0.33), (47.93, 0.01), (19.01, 0.10)),
    "role": ((88.26, 0.21), (69.12, 0.13), (41.95, 0.21), (14.80, 0.61)),
    "em": ((88.67, 0.08), (70.64, 0.09), (47.25, 0.30), (20.69, 0.53)),
    "em_apl": ((89.19, 0.31), (70.87, 0.23), (47.78, 0.18), (21.20, 0.79)),
    "smile": ((87.31, 0.15), (70.43, 0.21), (47.24, 0.17), (18.61, 0.14)),
    "mime": ((89.20, 0.16), (72.92, 0.26), (48.74, 0.43), (21.89, 0.35)),
    "gr": ((89.83, 0.12), (73.17, 0.36), (49.08, 0.04), (21.64, 0.32)),
}
DOUBTS: dict[str, dict[str, str]] = {
    "splc": {"nuswide": COPIED, "cub": COPIED},
    "ll_ct": {"nuswide": EXCHANGED, "cub": EXCHANGED},
    "ll_cp": {"nuswide": EXCHANGED, "cub": EXCHANGED},
    "ll_r": {"cub": ROUNDED},
    "role": dict.fromkeys(COLUMNS, TWO_SETTINGS),
}
# in the order of COLUMNS
ELSEWHERE: dict[str, tuple[tuple[str, tuple[float, float, float, float]], ...]] = {
    "full": ((AEVLP, (89.42, 76.78, 52.08, 30.90)),),
    "an": ((AEVLP, (85.89, 64.92, 42.27, 18.31)),),
    "role": (
        (BOOSTLU + ", plain", (87.77, 67.04, 41.63, 13.66)),
        (BOOSTLU + ", LinearInit", (88.26, 69.12, 45.98, 14.86)),
    ),
    "em": ((VLPL, (89.09, 70.70, 47.15, 20.85)),),
    "em_apl": ((VLPL, (89.19, 70.87, 47.59, 21.84)),),
    "ll_r": ((LARGE_LOSS, (89.2, 71.0, 47.4, 19.5)), (BOOSTLU, (88.27, 70.70, 48.76, 19.56))),
    "boostlu": ((BOOSTLU, (89.29, 72.89, 49.59, 19.80)),),
    "crisp": ((CRISP, (89.82, 74.64, 50.00, 21.65)),),
    "lagc": ((CRISP + ", its rerun", (88.02, 70.42, 46.21, 21.84)),),
}
ABLATION: dict[str, tuple[float, float]] = {  # VOC, COCO
    "AN": (85.89, 64.92),
    "k̂ ✓, v ✗, L ✗": (88.31, 70.41),
    "k̂ ✗, v ✓, L ✗": (87.32, 69.17),
    "k̂ ✗, v ✗, L ✓": (87.48, 69.96),
    "k̂ ✓, v ✓, L ✗": (88.11, 70.48),
    "k̂ ✓, v ✗, L ✓": (89.35, 72.86),
    "k̂ ✗, v ✓, L ✓": (87.83, 70.20),
    "k̂ ✓, v ✓, L ✓": (89.83, 73.17),
    "k̂ ○, v ○, L ✓": (89.03, 71.84),
}


def paper_quote(row: str, data: str) -> Quote | None:
    """Return the paper's figure for a method or an ablation row on a benchmark."""
    if data not in COLUMNS:
        return None
    place = COLUMNS.index(data)
    if row in ABLATION:
        return Quote(ABLATION[row][place], None, PAPER_ABLATION) if place < 2 else None
    cell = TABLE_2[row][place] if row in TABLE_2 else None
    return None if cell is None else Quote(*cell, PAPER, DOUBTS.get(row, {}).get(data, ""))


def other_quotes(row: str, data: str) -> list[Quote]:
    """Return the method's figures from other publications."""
    if data not in COLUMNS:
        return []
    place = COLUMNS.index(data)
    return [Quote(figures[place], None, source) for source, figures in ELSEWHERE.get(row, ())]
