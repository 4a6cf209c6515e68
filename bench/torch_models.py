# SPDX-License-Identifier: Apache-2.0
"""The architectures of `./dev bench torch`: torchvision, timm and transformers, in small configurations with seeded
random weights. No file of weights is read. Each entry of ARCHITECTURES is a function that gives a module in evaluation
mode and what it is called with, as positional and as named arguments."""

import functools

SEED = 1


def _image(size, channels=3):
    import torch

    return torch.rand(1, channels, size, size, generator=torch.Generator().manual_seed(SEED))


def _ids(length, vocabulary, batch=1):
    import torch

    return torch.randint(1, vocabulary, (batch, length), generator=torch.Generator().manual_seed(SEED))


def _torchvision(name, size, **options):
    import torchvision

    where = torchvision.models
    for part in name.split(".")[:-1]:
        where = getattr(where, part)
    make = getattr(where, name.split(".")[-1])
    pretrained = {"weights": None, **({"weights_backbone": None} if name.count(".") else {})}
    return make(**pretrained, **options), (_image(size),), {}


def _detector(name, size):
    model, (image,), named = _torchvision(f"detection.{name}", size, num_classes=5)
    model.transform.min_size, model.transform.max_size = (size,), size
    return model, ([image[0]],), named


def _timm(name, size, **options):
    import timm

    return timm.create_model(name, pretrained=False, **options), (_image(size),), {}


def _hugging(configuration, model, inputs, **options):
    import transformers

    module = getattr(transformers, model)(getattr(transformers, configuration)(**options))
    if hasattr(module.config, "use_cache"):
        module.config.use_cache = False
    return module, (), inputs()


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WORDS = 200


def _tokens(length=16, **more):
    import torch

    ids = _ids(length, WORDS)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **{name: make() for name, make in more.items()}}


def _plain_tokens(length=16):
    return {"input_ids": _ids(length, WORDS)}


def _pixels(size=32, **more):
    return {"pixel_values": _image(size), **more}


def _encoder(configuration, model, inputs=_tokens, **options):
    return _hugging(configuration, model, inputs, **{"vocab_size": WORDS, **SMALL, **options})


def _decoder(configuration, model, inputs=_plain_tokens, **options):
    return _hugging(configuration, model, inputs, **{"vocab_size": WORDS, **SMALL, **options})


def _text_to_text(configuration, model, **options):
    def inputs():
        return {"input_ids": _ids(12, WORDS), "decoder_input_ids": _ids(6, WORDS)}

    return _hugging(configuration, model, inputs, vocab_size=WORDS, **options)


def _whisper():
    import torch

    def inputs():
        generator = torch.Generator().manual_seed(SEED)
        return {"input_features": torch.rand(1, 16, 60, generator=generator), "decoder_input_ids": _ids(6, WORDS)}

    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return _hugging(
        "WhisperConfig", "WhisperForConditionalGeneration", inputs, vocab_size=WORDS, num_mel_bins=16, d_model=64,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=30, max_target_positions=20, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, **sizes,
    )  # fmt: skip


def _speech(configuration, model, **options):
    import torch

    def inputs():
        return {"input_values": torch.rand(1, 4000, generator=torch.Generator().manual_seed(SEED)) - 0.5}

    return _hugging(
        configuration, model, inputs, vocab_size=40, **SMALL, conv_dim=(32, 32, 32), conv_stride=(5, 4, 4),
        conv_kernel=(10, 8, 4), num_feat_extract_layers=3, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, **options,
    )  # fmt: skip


def _clip(configuration="CLIPConfig", model="CLIPModel"):
    text = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 32, "projection_dim": 32}
    if configuration == "CLIPConfig":
        text.update(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    vision = {**SMALL, "image_size": 32, "patch_size": 8, "projection_dim": 32}
    more = {"projection_dim": 32} if configuration == "CLIPConfig" else {}
    return _hugging(
        configuration, model, lambda: {**_tokens(12), **_pixels(32)}, text_config=text, vision_config=vision, **more
    )


def _vision(configuration, model, size=32, **options):
    return _hugging(configuration, model, lambda: _pixels(size), **options)


of = functools.partial
ARCHITECTURES = {
    # torchvision: classification
    "torchvision/resnet18": of(_torchvision, "resnet18", 64),
    "torchvision/densenet121": of(_torchvision, "densenet121", 64),
    "torchvision/squeezenet1_1": of(_torchvision, "squeezenet1_1", 64),
    "torchvision/googlenet": of(_torchvision, "googlenet", 96, init_weights=True, aux_logits=False),
    "torchvision/mobilenet_v2": of(_torchvision, "mobilenet_v2", 64),
    "torchvision/mobilenet_v3_small": of(_torchvision, "mobilenet_v3_small", 64),
    "torchvision/mnasnet0_5": of(_torchvision, "mnasnet0_5", 64),
    "torchvision/shufflenet_v2_x0_5": of(_torchvision, "shufflenet_v2_x0_5", 64),
    "torchvision/efficientnet_b0": of(_torchvision, "efficientnet_b0", 64),
    # torchvision: segmentation, detection, video, optical flow
    "torchvision/lraspp_mobilenet_v3_large": of(_torchvision, "segmentation.lraspp_mobilenet_v3_large", 96),
    "torchvision/ssdlite320_mobilenet_v3_large": of(_detector, "ssdlite320_mobilenet_v3_large", 320),
    "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn": of(_detector, "fasterrcnn_mobilenet_v3_large_320_fpn", 128),
    # timm
    "timm/mobilenetv4_conv_small": of(_timm, "mobilenetv4_conv_small", 64),
    "timm/efficientnet_lite0": of(_timm, "efficientnet_lite0", 64),
    "timm/ghostnet_100": of(_timm, "ghostnet_100", 64),
    "timm/regnetx_002": of(_timm, "regnetx_002", 64),
    "timm/convnextv2_atto": of(_timm, "convnextv2_atto", 64),
    "timm/mobilevit_xxs": of(_timm, "mobilevit_xxs", 64),
    "timm/levit_128s": of(_timm, "levit_128s", 224),
    "timm/deit_tiny_patch16_224": of(_timm, "deit_tiny_patch16_224", 64, img_size=64),
    "timm/pvt_v2_b0": of(_timm, "pvt_v2_b0", 64),
    # transformers: encoders
    "transformers/bert": of(_encoder, "BertConfig", "BertForSequenceClassification"),
    "transformers/distilbert": of(
        _hugging,
        "DistilBertConfig",
        "DistilBertForQuestionAnswering",
        _tokens,
        vocab_size=WORDS,
        dim=64,
        n_layers=2,
        n_heads=4,
        hidden_dim=128,
    ),
    "transformers/roberta": of(_encoder, "RobertaConfig", "RobertaForMaskedLM"),
    "transformers/albert": of(_encoder, "AlbertConfig", "AlbertModel", embedding_size=32),
    "transformers/electra": of(_encoder, "ElectraConfig", "ElectraModel", embedding_size=32),
    "transformers/mobilebert": of(
        _encoder,
        "MobileBertConfig",
        "MobileBertModel",
        intra_bottleneck_size=32,
        embedding_size=32,
        true_hidden_size=32,
    ),
    "transformers/deberta_v2": of(
        _encoder,
        "DebertaV2Config",
        "DebertaV2Model",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        max_position_embeddings=32,
    ),
    "transformers/modernbert": of(
        _encoder,
        "ModernBertConfig",
        "ModernBertModel",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "transformers/xlnet": of(
        _hugging, "XLNetConfig", "XLNetModel", _tokens, vocab_size=WORDS, d_model=64, n_layer=2, n_head=4, d_inner=128
    ),
    # transformers: decoders
    "transformers/gpt2": of(
        _hugging,
        "GPT2Config",
        "GPT2LMHeadModel",
        _plain_tokens,
        vocab_size=WORDS,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "transformers/opt": of(
        _hugging,
        "OPTConfig",
        "OPTForCausalLM",
        _plain_tokens,
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=128,
        word_embed_proj_dim=64,
        max_position_embeddings=64,
    ),
    "transformers/gpt_neox": of(_decoder, "GPTNeoXConfig", "GPTNeoXForCausalLM", bos_token_id=1, eos_token_id=2),
    "transformers/llama": of(_decoder, "LlamaConfig", "LlamaForCausalLM", num_key_value_heads=2),
    "transformers/qwen2": of(_decoder, "Qwen2Config", "Qwen2ForCausalLM", num_key_value_heads=2),
    "transformers/gemma": of(_decoder, "GemmaConfig", "GemmaForCausalLM", num_key_value_heads=2, head_dim=16),
    "transformers/phi": of(_decoder, "PhiConfig", "PhiForCausalLM"),
    "transformers/bloom": of(
        _hugging,
        "BloomConfig",
        "BloomForCausalLM",
        _plain_tokens,
        vocab_size=WORDS,
        hidden_size=64,
        n_layer=2,
        n_head=4,
    ),
    "transformers/mamba": of(
        _hugging,
        "MambaConfig",
        "MambaForCausalLM",
        of(_plain_tokens, 8),
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=8,
    ),
    "transformers/mixtral": of(
        _decoder, "MixtralConfig", "MixtralForCausalLM", num_key_value_heads=2, num_local_experts=4
    ),
    # transformers: text to text, speech, vision, both
    "transformers/t5": of(
        _text_to_text,
        "T5Config",
        "T5ForConditionalGeneration",
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    ),
    "transformers/bart": of(
        _text_to_text,
        "BartConfig",
        "BartForConditionalGeneration",
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=2,
    ),
    "transformers/whisper": _whisper,
    "transformers/wav2vec2": of(_speech, "Wav2Vec2Config", "Wav2Vec2ForCTC"),
    "transformers/hubert": of(_speech, "HubertConfig", "HubertModel"),
    "transformers/clip": _clip,
    "transformers/siglip": of(_clip, "SiglipConfig", "SiglipModel"),
    "transformers/vit": of(_vision, "ViTConfig", "ViTForImageClassification", **SMALL, image_size=32, patch_size=8),
    "transformers/dinov2": of(
        _vision,
        "Dinov2Config",
        "Dinov2Model",
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    ),
    "transformers/segformer": of(
        _vision,
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        64,
        hidden_sizes=[16, 32, 64, 64],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 4, 4],
        decoder_hidden_size=32,
    ),
    "transformers/mobilevit": of(
        _vision,
        "MobileViTConfig",
        "MobileViTForImageClassification",
        64,
        hidden_sizes=[48, 64, 80],
        neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 128],
        image_size=64,
    ),
    "transformers/swin": of(
        _vision,
        "SwinConfig",
        "SwinModel",
        32,
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "transformers/yolos": of(
        _vision,
        "YolosConfig",
        "YolosForObjectDetection",
        32,
        **SMALL,
        image_size=[32, 32],
        patch_size=8,
        num_detection_tokens=10,
    ),
    "transformers/detr": of(
        _vision,
        "DetrConfig",
        "DetrForObjectDetection",
        64,
        use_timm_backbone=False,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        num_queries=10,
    ),
}


def make(name):
    """(module in evaluation mode, positional arguments, named arguments)."""
    import torch

    torch.manual_seed(SEED)
    module, arguments, named = ARCHITECTURES[name]()
    return module.eval(), arguments, named


def samples(feeds, count):
    """Random inputs in the form of the given ones, for calibration: the first are those themselves. Whole numbers stay
    as they are, since token ids and masks have a meaning."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    draw = lambda value: rng.uniform(value.min(), value.max(), value.shape).astype(value.dtype)
    more = [
        {name: draw(value) if value.dtype.kind == "f" else value for name, value in feeds.items()}
        for _ in range(count - 1)
    ]
    return [feeds, *more]
