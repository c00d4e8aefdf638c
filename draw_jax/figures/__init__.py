"""Images of DRAW: functions from arrays to grids, figures, animations and a web page.

Nothing here but `passes` and the command (`python -m draw_jax.figures`) knows a
model, so a notebook can call the rest with arrays of its own. Images are
[..., H, W, C], floats in [0, 1] or uint8; the letters of the shapes are those of
`draw_jax.attention`.
"""
