"""UPS latent caches in Python. `ups_zarr.latent` holds the codec in NumPy; `ups_zarr.codec` gives it to zarr-python."""
