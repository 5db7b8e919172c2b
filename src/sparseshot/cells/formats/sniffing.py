"""Recognition of a format by the first bytes of a file."""

import re
from pathlib import PurePath

from sparseshot.errors import FormatError

_MAGIC = {
    b"PAR1": "geoparquet",
    b"\x89PNG\r\n\x1a\n": "mask",
    b"II*\0": "mask",
    b"MM\0*": "mask",
    b"II+\0": "mask",
    b"MM\0+": "mask",
    b"\x93NUMPY": "mask",
    b"MATLAB": "matlab",
}
_COCO_KEYS = {b"info", b"licenses", b"images", b"annotations", b"categories"}
_XML_ROOTS = {b"ASAP_Annotations": "asap", b"Annotations": "aperio"}


def sniff(head: bytes, name: str) -> str:
    """Return the name of the format.

    >>> sniff(b'{"images": [', "cells.json"), sniff(b'[{"type": "Feature"', "cells.json")
    ('coco', 'qupath')
    """
    for magic, format_name in _MAGIC.items():
        if head.startswith(magic):
            return format_name
    suffix = PurePath(name.removesuffix(".gz")).suffix.lower()
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if is_utf16:
        head = head[: len(head) // 2 * 2].decode("utf-16", errors="ignore").encode()
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        root = re.search(rb"<([A-Za-z_][\w.:-]*)", text)
        if root is None or root[1] not in _XML_ROOTS:
            what = root[1].decode(errors="replace") if root else text[:20].decode(errors="replace")
            raise FormatError(
                name, f"is XML of {what!r}; known are the annotations of ImageScope, HALO and ASAP"
            )
        return _XML_ROOTS[root[1]]
    if is_utf16 and text:
        raise FormatError(name, "is text in UTF-16; save it in UTF-8")
    if text.startswith(b"{"):
        key = re.match(rb'\{\s*"([^"]*)"', text)
        return "coco" if key and key[1] in _COCO_KEYS else "qupath"
    if text.startswith(b"["):
        return "coco" if re.match(rb'\[\s*\{[^{}\[\]]*"(image_id|category_id)"', text) else "qupath"
    if suffix == ".mat":
        return "matlab"  # version 4 has no magic number
    if not text:
        raise FormatError(name, "is empty")
    if b"\0" in text or suffix not in {".csv", ".tsv", ".txt"}:
        raise FormatError(
            name,
            "is in no known format; known are QuPath GeoJSON, GeoParquet, COCO, XML of ImageScope, HALO and "
            "ASAP, CSV, label masks (PNG, TIFF, NPY) and .mat",
        )
    return "csv"
