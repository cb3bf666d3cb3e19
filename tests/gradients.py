"""Gradients held against central differences, and the seven schemes of the course."""

import numpy as np

SEVEN = ["none", "sinusoidal", "learned", "shaw", "t5", "rope", "alibi"]


def slope(value, array, index, step=1e-6):
    """The central difference of value() along one entry of an array, which is put back."""
    kept, sides = array[index], []
    for moved in (kept + step, kept - step):
        array[index] = moved
        sides.append(value())
    array[index] = kept
    return (sides[0] - sides[1]) / (2 * step)


def agrees(value, array, gradient, *, at=None, relative=1e-6):
    """The gradient of value() equals central differences, to a share of the array's largest gradient.

    at: the flat indices to try (all of them, if not given).
    """
    assert gradient.shape == array.shape
    indices = [np.unravel_index(i, array.shape) for i in (range(array.size) if at is None else at)]
    slopes = np.array([slope(value, array, index) for index in indices])
    claimed = np.array([gradient[index] for index in indices])
    largest = np.abs(gradient).max()
    assert largest > 0
    np.testing.assert_allclose(claimed, slopes, rtol=0, atol=relative * largest)
