"""A small network trained by PyTorch through Sinter, and an operator of one's own with its gradient."""
import sinter
import sinter.torch
import torch
from torch.nn import functional


def scaled_relu(x, *, slope: float):
    return sinter.relu_fwd(x) * slope


def scaled_relu_backward(grad, x, *, slope: float):
    return sinter.relu_bwd(grad, x) * slope


activation = sinter.torch.operator(scaled_relu, "example::scaled_relu",
                                   backward=scaled_relu_backward)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 32), torch.nn.Linear(32, 3)

    def forward(self, x):
        return self.down(activation(self.up(functional.layer_norm(x, (8,))), slope=0.5))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Network().to(device)
run = torch.compile(model, backend="sinter", dynamic=False)  # forward and backward
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x = torch.randn(64, 8, device=device)
labels = x[:, :3].argmax(1)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = functional.cross_entropy(run(x), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
print(sinter.torch.report())
assert losses[-1] < 0.8 * losses[0]
