"""Facts and maths of TPU hardware: generations, accelerator types, topologies, torus geometry."""
