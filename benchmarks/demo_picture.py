"""The picture and the figures of the README, from a demonstration.

    secure-fedgraph demo --out demo && python benchmarks/demo_picture.py demo

Keeps ``demo.json`` in ``benchmarks/results/`` and writes ``docs/images/demo.png``: both scenes of the first
screen side by side. ``tests/docs/test_demo_figures.py`` holds the README's sentence to the file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont
from written_pages import options

from secure_fedgraph.report.figures.svg import INK
from secure_fedgraph.report.sections.demo_page import BUDGET, OPEN

ROOT = Path(__file__).resolve().parents[1]
RESULT, PICTURE = ROOT / "benchmarks/results/demo.json", ROOT / "docs/images/demo.png"
GAP, HEAD = 40, 70
"""White pixels between the scenes, and above them for their titles."""


def main() -> None:
    """Writes both files."""
    parser = options(__doc__, rows=False)
    parser.add_argument("folder", type=Path, help="of the demonstration")
    folder = parser.parse_args().folder
    shutil.copyfile(folder / "demo.json", RESULT)
    scenes = [Image.open(folder / f"plots/demo-{name}.png").convert("RGB") for name in ("open", "budget")]
    width, height = sum(one.width for one in scenes) + GAP, max(one.height for one in scenes) + HEAD
    picture, left = Image.new("RGB", (width, height), "white"), 0
    font = ImageFont.truetype(findfont("DejaVu Sans:bold"), HEAD // 2)
    for title, scene in zip((OPEN, BUDGET), scenes, strict=True):
        ImageDraw.Draw(picture).text((left + 10, HEAD // 6), title, fill=INK, font=font)
        picture.paste(scene, (left, HEAD))
        left += scene.width + GAP
    picture.quantize(32).save(PICTURE, optimize=True)
    print(f"{RESULT}\n{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
