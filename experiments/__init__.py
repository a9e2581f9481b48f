"""Scripts that measure Seqlab or make its shipped models. They import the package; the package never imports them.

Run from the project's root:

    python -m experiments.bench [NAME]       races against other libraries (`make bench`)
    python experiments/characters.py         time to quality on characters, next to a plain GPT
    python experiments/few_labels.py         gain of pretraining with 200 labels
    python experiments/growth.py             time and memory by size of the corpus and length of the answer
    python experiments/processes.py          training speed of several processes and threads
    python experiments/proteins.py           files for the protein results
    python experiments/shipped_models.py     the models that come with the package (`make models`)
    python experiments/gallery.py            pictures of every view (`make gallery`)
    python experiments/screenshots.py        pictures of the page
"""
