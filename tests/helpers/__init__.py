"""What several test files share: corpora, tiny models, slow twins, processes that are killed."""
