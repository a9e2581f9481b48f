// Compare: two models, or two checkpoints of one, side by side on the same input.
import * as api from "./api.js"
import {bars} from "./chart.js"
import {element, quoted, shown} from "./element.js"
import {Pane, capital, section} from "./pane.js"
import {picture} from "./picture.js"

const NAMES = {lens: "stages", attention: "attention", beam: "beam search", gradients: "flow of the gradient",
  saliency: "what the answer rests on", cells: "text by a unit"}

/** Of the models for the same task, the one whose name begins most alike. */
function alike(model, others) {
  const common = name => { let k = 0; while (k < name.length && name[k] === model.name[k]) k++; return k }
  return others.filter(each => each.task === model.task).sort((a, b) => common(b.name) - common(a.name))[0]
}

export class ComparePane extends Pane {
  async render(signal) {
    const {model, models, named} = this.page
    const others = models.filter(each => each.name !== model.name)
    const checkpoints = model.run ? (await api.runs(model.base ?? model.name, 1e9,
      signal)).checkpoints.map(each => `${model.base ?? model.name}@${each}`) : []
    const options = [...others.map(each => each.name), ...checkpoints.filter(each => each !== model.name)]
    if (!options.length) {
      this.controls([])
      return this.fill(element("p", {class: "empty"},
        "There is only this model here. Start the server with two folders to compare two models."))
    }
    const usual = alike(model, others)?.name ?? options[0]
    const other = named(options.includes(this.page.controls.with) ? this.page.controls.with : usual)
    const views = Object.keys(NAMES).filter(view => view !== "lens" && model.views.includes(view) &&
      other.views.includes(view))
    this.controls([
      {key: "with", kind: "select", label: "Compare with", options, value: usual,
        hint: "The second model; it is given the same input."},
      {key: "view", kind: "select", label: "Pictures of", options: [["", "nothing more"],
        ...views.map(view => [view, NAMES[view]])], value: views[0] ?? "",
        hint: "A view that both have, drawn for both."},
    ])
    const view = views.includes(this.value("view")) ? this.value("view") : null
    const sides = await Promise.all([model, other].map(each => this.side(each, view, signal)))
    const [one, two] = sides.map(side => side.answer)
    this.fill(element("p", {class: "hint"}, one === null ||
      two === null ? "" : one === two ? "Both give the same answer." : "They give different answers."),
      element("div", {class: "pair"}, ...sides.map(side => side.card)))
  }

  /** One model's answer, how sure it was of each part, and a picture; a model that cannot says why. */
  async side(model, view, signal) {
    const asked = options => ({model: model.name, input: this.page.given, options})
    try {
      const [{outputs: [said]}, lens] = await Promise.all([api.predict({model: model.name, inputs: [this.page.given]},
        signal), model.views.includes("lens") ? api.explain("lens", asked({}), signal) : null])
      const answer = String(said.output ?? said.label ?? JSON.stringify(said))
      const sure = lens ? lens.answered.map((token, k) => [token,
        lens.likeliest[k].find(guess => guess.answer === token)?.probability ?? 0]) : []
      const drawn = view ? (await api.explain(view, asked({}), signal)).pictures.slice(0, 1).map(picture) : []
      const card = section(model.name, `${model.recipe}, ${Number(model.parameters).toLocaleString("en")} parameters`,
        element("p", {class: "answer"}, quoted(answer || "(nothing)")),
        said.score === undefined || said.score === null ? null : element("p", {class: "hint"},
          `score ${shown(said.score, 4)}`),
        said.unread ? element("p", {class: "error"},
          `It was not shown the last ${said.unread} tokens: too long.`) : null,
        sure.length ? element("details", {open: sure.length <= 24},
          element("summary", {}, "How likely it found each part"),
          bars(sure.slice(0, 64), {label: "probability of each part of the answer", far: 1})) : null, ...drawn)
      return {answer, card}
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error
      return {answer: null, card: section(model.name, null, element("p", {class: "error"}, capital(error.message)),
        element("p", {class: "hint"}, capital(error.hint ?? "")))}
    }
  }
}
