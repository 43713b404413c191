"""Small models that tests and benchmarks train: transformers of two layers, ResNet bottlenecks."""
import torch
from torch.nn import functional


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


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


def transformer(width=16, heads=2, dim=(2, 6)):
    model = torch.nn.Sequential(*(Layer(width, heads) for _ in range(2)))
    return model, torch.randn(*dim, width)


def rotary(width=16, heads=4, dim=(2, 6)):
    model = torch.nn.Sequential(*(RotaryLayer(width, heads) for _ in range(2)))
    return model, torch.randn(*dim, width)


def resnet(channels=8, dim=(2, 5)):
    model = torch.nn.Sequential(*(Bottleneck(channels) for _ in range(2)))
    x = torch.randn(dim[0], channels, dim[1], dim[1])
    return model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
