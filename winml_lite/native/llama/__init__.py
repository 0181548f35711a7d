"""llama.cpp as an engine: stages from `.gguf` files, and GGUF vocabularies.

Nothing native is loaded before the first stage is built or the first vocabulary opened. In reading order: `api` names
the C functions, `library` loads them and routes their log, `guard` checks a file before the engine sees it, `model` and
`context` own the native objects, `sequence` feeds tokens, `executor` binds tensors, `backend` builds stages. Beside
them: `embedding` for stages without a sequence, `segments` and `media` for rows of images and sound, `speculation` and
`predictor` for drafts, `saved_state`, and `vocabulary`, which tokenises.
"""
