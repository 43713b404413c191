"""Small models that the tests train: a transformer of two layers, a ResNet bottleneck."""
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


def resnet(channels=8, dim=(2, 5)):
    model = torch.nn.Sequential(*(Bottleneck(channels) for _ in range(2)))
    x = torch.randn(dim[0], channels, dim[1], dim[1])
    return model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
