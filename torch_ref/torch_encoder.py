"""What ``torch.nn.TransformerEncoder`` holds, as the options and parameters of ``encoder``."""

from typing import Any

from torch import nn
from torch.nn import functional

from torch_ref.config import Activation, EncoderConfig
from torch_ref.dense import map_params
from torch_ref.torch_layout import dense_params, linear_params, norm_params, split_heads, stacked


def from_torch_encoder(module: nn.TransformerEncoder) -> tuple[EncoderConfig, dict[str, Any]]:
    """Read options and parameters off PyTorch's own encoder.

    Args:
      module: of ``nn.TransformerEncoderLayer``s that are alike in all but their weights, with a
        ``nn.LayerNorm`` or nothing at its end. ``batch_first`` plays no part: ``encoder`` always
        has the batch first.

    Returns:
      The config, with the eps, activation, order of norms and rate of dropout of the module, and
      copies of its parameters as ``encoder`` takes them, of its dtype.

    Raises:
      TypeError: if the module or one of its layers is of another class.
      ValueError: if layers differ in an option, or one is not among those of ``EncoderConfig``.

    Source: ``torch.nn.TransformerEncoder``.
    """
    if not isinstance(module, nn.TransformerEncoder):
        raise TypeError(
            f"`module` must be a torch.nn.TransformerEncoder, got {type(module).__name__}. "
            "Of a single layer, pass torch.nn.TransformerEncoder(layer, 1)."
        )
    options = [_layer_options(f"layers.{i}", layer) for i, layer in enumerate(module.layers)]
    for index, option in enumerate(options):
        if option != options[0]:
            name = next(name for name in option if option[name] != options[0][name])
            raise ValueError(
                f"`module` must have layers that are alike, but {name} is {options[0][name]!r} in "
                f"layers.0 and {option[name]!r} in layers.{index}. Pass them one by one."
            )
    config = EncoderConfig(
        num_layers=len(module.layers), final_norm=module.norm is not None, **options[0]
    )
    params: dict[str, Any] = {"layers": stacked([_layer_params(each) for each in module.layers])}
    if module.norm is not None:
        if _norm_eps("norm", module.norm) != config.eps:
            raise ValueError(
                f"`module` must have one eps, but norm has {module.norm.eps} and the layers have "
                f"{config.eps}. Take the last norm out, and call `layer_norm` on the result."
            )
        params["final_norm"] = norm_params(module.norm)
    return config, map_params(params, lambda leaf: leaf.detach().clone())


def _layer_options(name: str, layer: Any) -> dict[str, Any]:
    """Return the options of a layer by the names of the config."""
    if type(layer) is not nn.TransformerEncoderLayer:
        raise TypeError(
            f"`module` must have layers of torch.nn.TransformerEncoderLayer, but {name} is a "
            f"{type(layer).__name__}, of which nothing is known."
        )
    rates = {layer.self_attn.dropout, layer.dropout.p, layer.dropout1.p, layer.dropout2.p}
    eps = {_norm_eps(f"{name}.norm{i}", norm) for i, norm in ((1, layer.norm1), (2, layer.norm2))}
    for option, values in (("eps of its norms", eps), ("rate of dropout", rates)):
        if len(values) > 1:
            raise ValueError(
                f"`module` must have one {option}, but {name} has {sorted(values)}. Set them alike."
            )
    return {
        "d_model": layer.self_attn.embed_dim,
        "num_heads": layer.self_attn.num_heads,
        "d_ff": layer.linear1.out_features,
        "norm": "pre" if layer.norm_first else "post",
        "activation": _activation(name, layer.activation),
        "eps": eps.pop(),
        "use_bias": layer.linear1.bias is not None,
        "dropout_rate": rates.pop(),
        "param_dtype": layer.linear1.weight.dtype,
    }


def _activation(name: str, activation: Any) -> Activation:
    if activation is functional.relu or isinstance(activation, nn.ReLU):
        return "relu"
    if activation is functional.gelu:
        return "gelu"
    if isinstance(activation, nn.GELU):
        return "gelu" if activation.approximate == "none" else "gelu_tanh"
    raise ValueError(
        f"`module` must have relu or gelu for its activation, but {name} has {activation!r}. "
        "Pass torch.nn.functional.relu or gelu, or torch.nn.GELU(approximate='tanh')."
    )


def _norm_eps(name: str, norm: Any) -> float:
    if not isinstance(norm, nn.LayerNorm) or norm.weight is None:
        raise TypeError(
            f"`module` must have torch.nn.LayerNorm with a weight for its norms, but {name} is "
            f"{norm!r}."
        )
    return float(norm.eps)


def _layer_params(layer: nn.TransformerEncoderLayer) -> dict[str, Any]:
    attention = layer.self_attn
    weights, bias = attention.in_proj_weight.chunk(3), attention.in_proj_bias
    biases = (None, None, None) if bias is None else bias.chunk(3)
    projections = {
        name: dense_params(weight, bias)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True)
    }
    projections["out"] = linear_params(attention.out_proj)
    return {
        "attention": split_heads(projections, attention.num_heads),
        "attention_norm": norm_params(layer.norm1),
        "feed_forward": {
            "in": linear_params(layer.linear1),
            "out": linear_params(layer.linear2),
        },
        "feed_forward_norm": norm_params(layer.norm2),
    }
