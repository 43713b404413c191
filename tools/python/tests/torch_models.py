"""Small models that tests and benchmarks train: transformers of two layers, ResNet bottlenecks, a
level of a U-Net."""
import torch
from torch.nn import functional


class Layer(torch.nn.Module):
    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + functional.dropout(self.out(o.transpose(1, 2).reshape(batch, length, width)), p)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.norm2(x)))), p)


class RotaryLayer(torch.nn.Module):
    """With rms norms, rotary positions, heads that share keys, and a gated unit."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        shared = width // 2
        self.q, self.k, self.v, self.out, self.gate, self.up, self.down = (
            torch.nn.Linear(a, b, bias=False) for a, b in (
                (width, width), (width, shared), (width, shared), (width, width),
                (width, 2 * width), (width, 2 * width), (2 * width, width)))

    def turned(self, x, angles):
        a, b = x.chunk(2, -1)
        turned = x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()
        return turned.to(x.dtype)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(batch, length, -1, self.size).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        steps = torch.arange(self.size // 2, device=x.device, dtype=torch.float32)
        angles = torch.arange(length, device=x.device, dtype=torch.float32)[:, None] * (
            100.0 ** (-2 * steps / self.size))
        angles = torch.cat([angles, angles], -1)
        o = functional.scaled_dot_product_attention(
            self.turned(q, angles), self.turned(k, angles), v, is_causal=True, enable_gqa=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Bottleneck(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        inner = channels // 4
        self.convolutions = torch.nn.ModuleList([
            torch.nn.Conv2d(channels, inner, 1, bias=False),
            torch.nn.Conv2d(inner, inner, 3, padding=1, bias=False),
            torch.nn.Conv2d(inner, channels, 1, bias=False)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(n)
                                          for n in (inner, inner, channels)])

    def forward(self, x):
        y = x
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            y = norm(convolution(y))
            y = functional.relu(x + y if i == 2 else y)
        return y


class DownAndUp(torch.nn.Module):
    """A level of a U-Net: half the size and back, joined with what was there."""

    def __init__(self, channels, groups):
        super().__init__()

        def part(before, after, stride=1):
            return torch.nn.Sequential(torch.nn.GroupNorm(groups, before), torch.nn.SiLU(),
                                       torch.nn.Conv2d(before, after, 3, stride, 1))
        self.first, self.down = part(channels, channels), part(channels, 2 * channels, 2)
        self.inner, self.last = part(2 * channels, 2 * channels), part(3 * channels, channels)

    def forward(self, x):
        kept = x + self.first(x)
        y = self.down(kept)
        y = functional.interpolate(y + self.inner(y), scale_factor=2, mode="nearest")
        return self.last(torch.cat([y, kept], 1))


def unet(channels=8, groups=2, dim=(2, 6), memory_format=torch.contiguous_format):
    x = torch.randn(dim[0], channels, dim[1], dim[1])
    model = DownAndUp(channels, groups).to(memory_format=memory_format)
    return model, x.to(memory_format=memory_format)


def transformer(width=16, heads=2, dim=(2, 6), dropout=0.0):
    model = torch.nn.Sequential(*(Layer(width, heads, dropout) for _ in range(2)))
    return model, torch.randn(*dim, width)


def rotary(width=16, heads=4, dim=(2, 6)):
    model = torch.nn.Sequential(*(RotaryLayer(width, heads) for _ in range(2)))
    return model, torch.randn(*dim, width)


def resnet(channels=8, dim=(2, 5)):
    model = torch.nn.Sequential(*(Bottleneck(channels) for _ in range(2)))
    x = torch.randn(dim[0], channels, dim[1], dim[1])
    return model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
