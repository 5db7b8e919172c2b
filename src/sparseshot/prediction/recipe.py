"""The recipe of a prediction: everything that decides its bytes; and the name of its folder."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import shapely

from sparseshot.errors import OutputError
from sparseshot.images.fingerprint import slide_fingerprint
from sparseshot.images.slide import Slide
from sparseshot.models.finder import Finder
from sparseshot.prediction.measuring import Measuring
from sparseshot.prediction.model import Model

_LONGEST_BYTES = 100
# Names that Windows keeps for devices.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def safe_name(name: str, *, suffix: str = "") -> str:
    """Return a name that is one folder on every system: letters of any script, digits, ``_ .-``.

    >>> safe_name("../../etc/passwd"), safe_name("Schnitt 7 (Köln).svs"), safe_name("病理 1.tif")
    ('etc_passwd', 'Schnitt 7 _Köln_.svs', '病理 1.tif')
    """
    text = re.sub(r"[^\w .-]+", "_", unicodedata.normalize("NFC", name)).strip(" ._")
    text = text.encode()[:_LONGEST_BYTES].decode(errors="ignore").strip(" .")
    text = text if text and not _DEVICES.match(text) else f"slide {text}".strip()
    return text + suffix


@dataclass(frozen=True)
class PredictRecipe:
    """Everything that decides the cells of a slide.

    Attributes:
        slide: name, size, resolution and fingerprint.
        model: fingerprint, task, classes and resolution.
        threshold: probability at which something is a cell.
        precision: of the network.
        engine: what runs the network.
        only_tissue: whether glass is left out.
        settings: of the finder.
        measured: what is measured of each cell.
        region: the part of the slide that is predicted, as WKT in level-0 pixels; None for all of it.
        kind: of work.
    """

    slide: Mapping[str, Any]
    model: Mapping[str, Any]
    threshold: float
    precision: str
    engine: str
    only_tissue: bool
    settings: Mapping[str, Any]
    measured: Mapping[str, Any]
    region: str | None = None
    kind: Literal["predict"] = "predict"

    @classmethod
    def resolve(
        cls,
        slide: Slide,
        model: Model,
        finder: Finder,
        measuring: Measuring,
        *,
        only_tissue: bool,
        region: shapely.Geometry | None,
    ) -> Self:
        """Return the recipe of a slide for a model whose engine is decided."""
        return cls(
            slide=slide_identity(slide),
            model={
                "fingerprint": model.fingerprint,
                "task": model.task.name,
                "classes": list(model.classes),
                "mpp": model.mpp,
            },
            threshold=model.threshold,
            precision=model.precision,
            engine=model.engine,
            only_tissue=only_tissue,
            settings=finder.settings(),
            measured=measuring.settings(),
            region=None if region is None else shapely.to_wkt(region, rounding_precision=2),
        )


def slide_identity(slide: Slide) -> dict[str, Any]:
    """Return what tells one slide from another, as JSON holds it."""
    return {
        "name": slide.name,
        "size_px": list(slide.size),
        "mpp": slide.mpp,
        "fingerprint": slide_fingerprint(slide),
    }


def folder_inside(out: Path, name: str, *, suffix: str = "") -> Path:
    """Return the folder of a name inside ``out``; a link that leads outside is an error."""
    folder = out / safe_name(name, suffix=suffix)
    if not folder.resolve().is_relative_to(out.resolve()):
        raise OutputError(folder, f"is a link that leads out of {out}; remove it or choose another --out")
    return folder
