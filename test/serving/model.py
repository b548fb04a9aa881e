"""Writes a tiny Llama with random weights, and a tokenizer of 2,048 words, to a folder: model.py FOLDER."""

import sys

import tokenizers
import torch
import transformers
from load import WORDS


def write(folder: str) -> None:
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    words = [*special.values(), *(f"w{i}" for i in range(len(special), WORDS))]
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(32)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=512, num_hidden_layers=4, head_dim=64,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048, bos_token_id=1,
        eos_token_id=2, tie_word_embeddings=False,
        initializer_range=0.2,  # large enough for answers that depend on the whole prompt
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1])
