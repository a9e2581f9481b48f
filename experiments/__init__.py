"""What measures Seqlab or makes what it ships. It imports the package; the package never imports it.

Run from the project's root:

    python -m experiments.bench [NAME]       races against other libraries (`make bench`)
    python experiments/characters.py         time to quality on characters, next to a plain GPT
    python experiments/few_labels.py         what pretraining is worth with 200 labels
    python experiments/growth.py             what grows with the corpus and with the length of an answer
    python experiments/processes.py          training speed of several processes and threads
    python experiments/proteins.py           files for the protein results
    python experiments/shipped_models.py     the models that come with the package (`make models`)
    python experiments/gallery.py            pictures of every view (`make gallery`)
    python experiments/screenshots.py        pictures of the page
"""
