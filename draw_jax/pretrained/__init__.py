"""The trained models that ship with the package, a file each: see `draw_jax.pretrained.model_file`.

`python -m draw_jax.export` writes them here; any .safetensors file of it that is put
here is a model by its name.
"""
