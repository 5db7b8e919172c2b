import pytest
import torch
from torch import nn

from sparseshot.errors import InputError
from sparseshot.models import YOLLO, UNet


@pytest.fixture(params=["unet-2", "unet-3", "yollo-4", "yollo-8", "yollo-16", "context-4", "context-8"])
def network(request: pytest.FixtureRequest) -> UNet | YOLLO:
    torch.manual_seed(0)
    name, number = request.param.split("-")
    made = (
        UNet(width=4, depth=int(number))
        if name == "unet"
        else YOLLO(width=4, stride=int(number), context=name == "context")
    )
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):  # fresh statistics would hide a wrong use of them
            assert module.running_mean is not None and module.running_var is not None  # noqa: PT018
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return made.eval()


@torch.inference_mode()
def test_any_size_goes_in(network: UNet | YOLLO) -> None:
    stride = network.stride if isinstance(network, YOLLO) else 1
    for height, width in ((1, 1), (17, 33), (64, 40)):
        shape = network(torch.randn(2, 3, height, width)).shape[-2:]
        assert tuple(shape) == (-(-height // stride), -(-width // stride))


def test_margin_covers_the_receptive_field_and_is_not_wasteful(network: UNet | YOLLO) -> None:
    stride = network.stride if isinstance(network, YOLLO) else 1
    margin, step = network.margin_px, network.alignment_px
    side = 2 * margin + 4 * step
    image = torch.randn(1, 3, side, side, requires_grad=True)
    reach = 0
    for middle in range(side // 2, side // 2 + step, stride):
        (gradient,) = torch.autograd.grad(
            network(image)[0, :, middle // stride, middle // stride].sum(), image
        )
        seen = torch.nonzero(gradient.abs().sum(dim=(0, 1)))
        start = middle // stride * stride
        reach = max(reach, int((start - seen).max()), int((seen - start - stride + 1).max()))
    assert reach <= margin
    assert margin - reach < 2 * step + margin // 3


@torch.inference_mode()
def test_a_tile_with_its_margin_gives_what_the_whole_gives(network: UNet | YOLLO) -> None:
    stride = network.stride if isinstance(network, YOLLO) else 1
    margin, step = network.margin_px, network.alignment_px
    whole = torch.randn(1, 3, 3 * margin + 8 * step, 2 * margin + 8 * step)
    top, height = step * (margin // step + 1), 4 * step
    tile = whole[:, :, top - margin : top + height + margin]
    inside = slice(margin // stride, (margin + height) // stride)
    expected = network(whole)[:, :, top // stride : (top + height) // stride]
    torch.testing.assert_close(network(tile)[:, :, inside], expected, rtol=1e-4, atol=1e-5)


def test_several_classes_and_sizes() -> None:
    assert UNet(out_channels=4, width=4, depth=1).eval()(torch.zeros(1, 3, 8, 8)).shape[1] == 4
    assert YOLLO(out_channels=4, width=4, sizes=True).eval()(torch.zeros(1, 3, 8, 8)).shape[1] == 8


def test_bad_arguments_are_told() -> None:
    with pytest.raises(InputError, match="stride is 5"):
        YOLLO(stride=5)
    with pytest.raises(InputError, match="width 0"):
        UNet(width=0)


@torch.inference_mode()
def test_kind_features_do_not_change_what_is_found() -> None:
    image = torch.randn(2, 3, 64, 48)
    for plain, with_kinds in (
        (YOLLO(width=4), YOLLO(width=4, kind_features=5, kinds=3)),
        (UNet(width=4, depth=2), UNet(width=4, depth=2, kind_features=5, kinds=3)),
    ):
        missing = with_kinds.load_state_dict(plain.state_dict(), strict=False).missing_keys
        assert {name.split(".")[0] for name in missing} == {"features", "kind_head"}
        expected, output = plain.eval()(image), with_kinds.eval()(image)
        torch.testing.assert_close(output[:, : expected.shape[1]], expected)
