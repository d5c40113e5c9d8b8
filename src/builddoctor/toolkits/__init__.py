"""CUDA toolkits of our own: NVIDIA's python packages, fetched by pip and put together to one CUDA_HOME each."""
