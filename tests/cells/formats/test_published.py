"""Formats as the publishers of data sets and other programs write them."""

import json
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import scipy.io
import shapely
import tifffile
from PIL import Image

from sparseshot.cells import Cells, rasterise, read_cells, write_cells
from sparseshot.cells.formats.geoparquet import read_places
from sparseshot.errors import FormatError, RepairWarning

REPAIRED = pytest.mark.filterwarnings("ignore:.*self-crossing outlines? repaired")


@REPAIRED
def test_monuseg_is_the_same_from_xml_and_from_labels(real_data: Path) -> None:
    folder = real_data / "monuseg"
    files = sorted((folder / "MoNuSegTrainingData" / "Annotations").glob("*.xml"))
    assert len(files) == 4
    for file in files:
        drawn = read_cells(file, size_px=(1000, 1000))
        labels = read_cells(folder / "labels_instance" / f"{file.stem}.png", size_px=(1000, 1000))
        assert abs(len(drawn) - len(labels)) <= 1
        assert drawn.mpp == pytest.approx(0.25, abs=0.004)
        assert drawn.classes == ("cell",)
        one, other = (rasterise(cells, (1000, 1000)) > 0 for cells in (drawn, labels))
        assert (one & other).sum() / (one | other).sum() >= 0.89, file.name


@REPAIRED
def test_monusac_has_four_classes_also_where_cells_stand_out_of_the_image(real_data: Path) -> None:
    counts: dict[str, int] = {}
    files = sorted((real_data / "monusac").rglob("*.xml"))
    outside = 0
    for file in files:
        cells = read_cells(file)
        assert cells.classes == ("Epithelial", "Lymphocyte", "Neutrophil", "Macrophage")
        assert cells.outline is not None
        assert shapely.is_valid(cells.outline).all()
        with tifffile.TiffFile(file.with_suffix(".svs")) as slide:
            height, width = slide.pages[0].shape[:2]
        x0, y0, x1, y1 = shapely.total_bounds(cells.outline)
        outside += x0 < 0 or y0 < 0 or x1 > width or y1 > height
        assert len(read_cells(file, size_px=(width, height))) == len(cells)
        for name, count in cells.counts().items():
            counts[name] = counts.get(name, 0) + count
    assert len(files) == 6
    assert sum(counts.values()) == 596
    assert outside


@pytest.mark.parametrize(
    ("pattern", "total"),
    [
        ("tnbc/labels_instance/*.png", 4028),
        ("tnbc/TNBC_NucleiSegmentation/GT_*/*.png", 4028),  # binary
        ("monuseg/labels_instance/*.png", 16957),
    ],
)
def test_label_masks_have_the_published_counts(real_data: Path, pattern: str, total: int) -> None:
    assert sum(len(read_cells(file)) for file in sorted(real_data.glob(pattern))) == total


def test_points_in_bare_columns(real_data: Path) -> None:
    root = real_data / "brca_m2c"
    names = [name for split in root.glob("brca_ds_*.txt") for name in split.read_text().split()]
    files = sorted((root / "labels").glob("*.txt"))
    tables = [read_cells(file, columns=("y", "x", "class")) for file in files]
    assert len(tables) == len(names) > 0
    assert set(Cells.concatenate(tables).counts()) == {"1", "2", "3"}
    y, x, kind = files[0].read_text().split()[:3]
    assert tables[0].xy[0].tolist() == [float(x), float(y)]
    assert tables[0].classes[tables[0].label[0]] == kind


def mat(path: Path, **content: Any) -> Path:
    scipy.io.savemat(path, content)
    return path


LABELS = np.array([[1, 1, 0, 0], [0, 0, 4, 4], [9, 9, 9, 0]])


def test_hovernet_files(tmp_path: Path) -> None:
    types = np.array([[2], [1], [2]])
    cells = read_cells(mat(tmp_path / "a.mat", inst_map=LABELS.astype(float), inst_type=types))
    assert cells.id is not None
    assert cells.id.tolist() == [1, 4, 9]
    assert [cells.classes[i] for i in cells.label] == ["2", "1", "2"]
    assert cells.xy.tolist() == [[1, 0.5], [3, 1.5], [1.5, 2.5]]
    by_map = np.where(LABELS == 4, 1, np.where(LABELS > 0, 2, 0))
    by_map[2, 0] = 1  # one pixel of another type does not count
    cells = read_cells(mat(tmp_path / "a.mat", inst_map=LABELS, type_map=by_map))
    assert [cells.classes[i] for i in cells.label] == ["2", "1", "2"]
    cells = read_cells(mat(tmp_path / "a.mat", inst_map=LABELS))
    assert cells.classes == ("cell",)
    cells = read_cells(mat(tmp_path / "a.mat", inst_map=LABELS, inst_type=np.array([[0], [1], [1]])))
    assert cells.label.tolist() == [-1, 0, 0]


def test_one_instance_in_two_pieces_stays_one(tmp_path: Path) -> None:
    cells = read_cells(mat(tmp_path / "a.mat", inst_map=np.array([[3, 0, 3]])))
    assert len(cells) == 1
    Image.fromarray(np.array([[3, 0, 3]], np.uint8)).save(tmp_path / "a.png")
    assert len(read_cells(tmp_path / "a.png")) == 2  # a mask of one value is binary


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"inst_map": LABELS, "inst_type": [1, 2]}, "3 instances but 2 types"),
        ({"inst_map": LABELS, "inst_type": [1, 2, -1]}, "type -1"),
        ({"inst_map": LABELS, "type_map": np.zeros((2, 2))}, "type_map is"),
        ({"inst_map": LABELS, "inst_type": ["a", "b", "c"]}, "inst_type holds"),
        ({"detection": np.zeros((3, 3))}, "N × 2"),
        ({"other": 1}, "holds other; inst_map or detection is needed"),
    ],
)
def test_mat_files_that_make_no_sense(tmp_path: Path, content: dict[str, Any], reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read_cells(mat(tmp_path / "a.mat", **content))


def test_crchisto_counts_from_one(tmp_path: Path) -> None:
    cells = read_cells(mat(tmp_path / "img1_detection.mat", detection=[[1, 1], [500, 7.5]]))
    assert cells.xy.tolist() == [[0.5, 0.5], [499.5, 7]]
    assert len(read_cells(mat(tmp_path / "none.mat", detection=np.zeros((0, 0))))) == 0


@pytest.mark.parametrize("suffix", [".png", ".tif", ".npy"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_masks_of_other_programs(tmp_path: Path, suffix: str, dtype: type[np.unsignedinteger[Any]]) -> None:
    labels = np.zeros((6, 8), dtype)
    labels[1:3, 1:4], labels[4, 6] = 5, np.iinfo(dtype).max
    path = tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, labels)
    elif suffix == ".tif":
        tifffile.imwrite(path, labels)
    elif dtype is np.uint32:
        return
    else:
        Image.fromarray(labels).save(path)
    cells = read_cells(path, size_px=(8, 6))
    assert cells.id is not None
    assert cells.id.tolist() == [5, np.iinfo(dtype).max]
    assert cells.xy.tolist() == [[2.5, 2], [6.5, 4.5]]


def test_masks_with_a_palette_and_with_lzw(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8))
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    image.save(tmp_path / "a.png")
    assert len(read_cells(tmp_path / "a.png")) == 2
    Image.fromarray(np.array([[0, 1, 2]], np.uint8)).save(tmp_path / "a.tif", compression="tiff_lzw")
    assert len(read_cells(tmp_path / "a.tif")) == 2
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "b.png")
    with pytest.raises(FormatError, match="one value for each pixel"):
        read_cells(tmp_path / "b.png")


def test_geopandas_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    outlines = [
        shapely.box(0, 0, 9, 9),
        None,
        shapely.MultiPolygon([shapely.box(0, 0, 1, 1), shapely.box(3, 3, 4, 4)]),
    ]
    cells = Cells(
        np.array([[4.5, 4.5], [7, 8], [2, 2]]),
        classes=("a", "b"),
        label=[0, 1, -1],
        outline=outlines,
        score=[0, 0.5, 1],
    )
    cells.write(tmp_path / "a.parquet")
    frame = geopandas.read_parquet(tmp_path / "a.parquet")
    assert frame.geometry.geom_type.tolist() == ["Polygon", "Point", "MultiPolygon"]
    assert frame["class"].tolist()[:2] == ["a", "b"]
    assert frame.crs is None
    assert frame.total_bounds.tolist() == [0, 0, 9, 9]
    Cells([[1, 2]]).write(tmp_path / "b.parquet")
    assert geopandas.read_parquet(tmp_path / "b.parquet").geometry.iloc[0].wkt == "POINT (1 2)"

    frame[["geometry", "class", "score"]].assign(area=[81.0, 0, 2]).to_parquet(tmp_path / "c.parquet")
    again = read_cells(tmp_path / "c.parquet")
    assert again.classes == ("a", "b")
    assert again.label.tolist() == [0, 1, -1]
    assert again.xy.tolist() == [[4.5, 4.5], [7, 8], [2, 2]]
    assert again.measurements["area"].tolist() == [81, 0, 2]
    assert again.outline is not None
    assert again.outline[1] is None


def test_geometry_of_others_counts_more_than_columns_x_and_y(tmp_path: Path) -> None:
    frame = geopandas.GeoDataFrame({"x": [100.0], "y": [200.0]}, geometry=[shapely.box(0, 0, 4, 4)])
    frame.to_parquet(tmp_path / "a.parquet")
    for cells in (read_cells(tmp_path / "a.parquet"), read_places(tmp_path / "a.parquet")):
        assert cells.xy.tolist() == [[2, 2]]


def test_coco_of_other_programs(tmp_path: Path) -> None:
    square = [[0, 0, 4, 0, 4, 4, 0, 4]]
    content = {
        "info": {},
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 8, "file_name": "b.png"}],
        "categories": [{"id": 3, "name": "nucleus"}, {"id": 1, "name": "mitosis"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "segmentation": square, "bbox": [0, 0, 4, 4]},
            {"id": 2, "image_id": 7, "category_id": 1, "segmentation": [], "bbox": [10, 20, 4, 6]},
            {"id": 3, "image_id": 7, "category_id": 1, "segmentation": {"size": [2, 3], "counts": [2, 2, 2]}},
            {"id": 4, "image_id": 7, "category_id": 1, "segmentation": square, "iscrowd": 1},
            {"id": 5, "image_id": 8, "category_id": 1, "segmentation": square, "score": 0.5},
        ],
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"2 images \(a\.png, b\.png, …\)"):
        read_cells(path)
    with pytest.warns(RepairWarning, match="1 crowd left out"):
        cells = read_cells(path, image="a.png")
    assert cells.classes == ("nucleus", "mitosis")
    assert cells.label.tolist() == [0, 1, 1]
    assert cells.xy.tolist() == [[2, 2], [12, 23], [1.5, 1]]
    assert cells.outline is not None
    assert [shape and shape.area for shape in cells.outline] == [16, None, 2]
    (only,) = read_cells(path, image=8).score.tolist()  # type: ignore[union-attr]
    assert only == 0.5
    with pytest.raises(FormatError, match=r"no image 'c\.png'; it has a\.png, b\.png"):
        read_cells(path, image="c.png")
    path.write_text(json.dumps([{"image_id": 1, "category_id": 18, "bbox": [0, 0, 2, 2], "score": 0.25}]))
    assert read_cells(path).classes == ("18",)


def test_imagescope_shapes(tmp_path: Path) -> None:
    def region(kind: int, *vertices: tuple[float, float], **more: str) -> str:
        corners = "".join(f'<Vertex X="{x}" Y="{y}" Z="0"/>' for x, y in vertices)
        extra = "".join(f' {name}="{value}"' for name, value in more.items())
        return f'<Region Id="1" Type="{kind}"{extra}><Vertices>{corners}</Vertices></Region>'

    box = ((0, 0), (9, 0), (9, 9), (0, 9))
    (tmp_path / "a.xml").write_text(
        '<Annotations MicronsPerPixel="0.5"><Annotation Id="1" Name="Tumour" LineColor="255"><Regions>'
        + region(0, *box)
        + region(0, (3, 3), (4, 3), (4, 4), (3, 4), NegativeROA="1")
        + region(2, (20, 20), (30, 40))
        + region(5, (50, 60))
        + region(3, (0, 0), (5, 5))
        + '</Regions></Annotation><Annotation Id="2" Name="Layer 2"><Regions>'
        + region(0, *box, Text="Immune")
        + "</Regions></Annotation>"
        + '<Annotation Id="3" Name="Exhaustive"><Regions>'
        + region(1, (0, 0), (99, 0), (99, 99), (0, 99))
        + "</Regions></Annotation></Annotations>"
    )
    with pytest.warns(RepairWarning, match="1 line left out"):
        cells = read_cells(tmp_path / "a.xml")
    assert cells.mpp == 0.5
    assert cells.classes == ("Tumour", "Immune")
    assert cells.label.tolist() == [0, 0, 0, 1]
    assert cells.outline is not None
    assert cells.outline[0].area == 80
    assert cells.outline[1].area == pytest.approx(np.pi * 5 * 10, rel=0.01)
    assert cells.outline[2] is None
    assert cells.xy[2].tolist() == [50.5, 60.5]
    assert cells.regions[0].area == 99 * 99


def test_asap_shapes(tmp_path: Path) -> None:
    def annotation(kind: str, *vertices: tuple[float, float], group: str = "None") -> str:
        places = "".join(f'<Coordinate Order="{k}" X="{x}" Y="{y}"/>' for k, (x, y) in enumerate(vertices))
        return (
            f'<Annotation Name="{kind}" Type="{kind}" PartOfGroup="{group}" Color="#F4FA58">'
            f"<Coordinates>{places}</Coordinates></Annotation>"
        )

    (tmp_path / "a.xml").write_text(
        '<?xml version="1.0"?><ASAP_Annotations><Annotations>'
        + annotation("Polygon", (0, 0), (4, 0), (4, 4), (0, 4), group="Tumour")
        + annotation("PointSet", (1, 2), (3, 4), group="Tumour")
        + annotation("Dot", (5, 6))
        + annotation("Measurement", (5, 6), (7, 8))
        + '</Annotations><AnnotationGroups><Group Name="Tumour" Color="#00FF00"/></AnnotationGroups>'
        + "</ASAP_Annotations>"
    )
    with pytest.warns(RepairWarning, match="1 measured line left out"):
        cells = read_cells(tmp_path / "a.xml")
    assert cells.label.tolist() == [0, 0, 0, -1]
    assert cells.xy.tolist() == [[2, 2], [1, 2], [3, 4], [5, 6]]
    assert cells.id is not None
    assert cells.id.tolist() == [b"Polygon", b"PointSet#0", b"PointSet#1", b"Dot"]


@pytest.mark.parametrize(
    "text",
    [
        "y;x;class\n2,5;1,5;a\n4;3;\n",
        "Class\tX\tY\na\t1.5\t2.5\n\t3\t4\n",
        '"x" , "y", "class"\n1.5, 2.5, a\n3, 4,\n',
        "\ufeffx,y,class\r\n1.5,2.5,a\r\n3,4,\r\n",
    ],
)
def test_csv_of_other_programs(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", newline="")
    cells = read_cells(tmp_path / "a.csv")
    assert cells.xy.tolist() == [[1.5, 2.5], [3, 4]]
    assert cells.classes == ("a",)
    assert cells.label.tolist() == [0, -1]


def test_csv_without_header_and_in_micrometres(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" 1  2 tumour\n3 4 tumour \n")
    assert read_cells(tmp_path / "a.txt").xy.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "b.tsv").write_text(
        "Image\tObject ID\tObject type\tClassification\tCentroid X µm\tCentroid Y µm\tArea µm^2\n"
        "a.svs\tu-1\tDetection\tTumor\t10\t20\t5.5\n",
        encoding="utf-8",
    )
    cells = read_cells(tmp_path / "b.tsv", mpp=0.25)
    assert cells.xy.tolist() == [[40, 80]]
    assert cells.classes == ("Tumor",)
    assert cells.id is not None
    assert cells.id.tolist() == [b"u-1"]
    assert cells.measurements["Area µm^2"].tolist() == [5.5]
    assert cells.kind is not None
    assert cells.kind.tolist() == [0]


def test_measurement_table_of_several_images(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Image,Centroid X px,Centroid Y px\na.svs,1,2\nb.svs,3,4\na.svs,5,6\n")
    with pytest.raises(FormatError, match=r"2 images \(a\.svs, b\.svs, …\)"):
        read_cells(path)
    assert read_cells(path, image="a.svs").xy.tolist() == [[1, 2], [5, 6]]
    with pytest.raises(FormatError, match=r"no image 'c\.svs'; it has a\.svs, b\.svs"):
        read_cells(path, image="c.svs")


def test_format_can_be_said(tmp_path: Path) -> None:
    write_cells(Cells([[1, 2]]), tmp_path / "a.data", format="csv")
    with pytest.raises(FormatError, match="no known format"):
        read_cells(tmp_path / "a.data")
    assert read_cells(tmp_path / "a.data", format="csv").xy.tolist() == [[1, 2]]
    write_cells(Cells([[1, 2]]), tmp_path / "a.json", format="coco")
    assert b'"annotations"' in (tmp_path / "a.json").read_bytes()
    assert read_cells(tmp_path / "a.json").xy.tolist() == [[1, 2]]
