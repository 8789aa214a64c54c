"""Values and gradients by PyTorch in float64, for tests to hold ours against. It stays on one thread: tensors are small."""

import pytest

torch = pytest.importorskip("torch", reason="this Python has no PyTorch; -DUPS_TORCH_PYTHON=… names one that has")
torch.set_num_threads(1)


def tensor(values):
    """Of NumPy's floating-point arrays in float64; a tensor keeps its place in the graph."""
    values = torch.as_tensor(values)
    return values.double() if values.is_floating_point() else values


def along(x, axis, index):
    """The cells at these places of an axis, by NumPy."""
    return x.index_select(axis, torch.as_tensor(index))


def value_and_gradients(function, parameters):
    """Of `function(parameters)`, a number and a dict of what else is to be known: both, and the number's gradient with respect to each parameter."""
    leaves = {name: tensor(values).detach().requires_grad_() for name, values in parameters.items()}
    value, more = function(leaves)
    gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    return (value.detach(), {name: found.detach() for name, found in more.items()},
            {name: torch.zeros_like(leaf) if gradient is None else gradient for (name, leaf), gradient in zip(leaves.items(), gradients)})
