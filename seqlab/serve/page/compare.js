// Compare: two models, or two checkpoints of one model, on the same input.
import * as api from "./api.js"
import {bars} from "./chart.js"
import {element, bdiText, formatNumber} from "./element.js"
import {Pane, capitalise, section} from "./pane.js"
import {picture} from "./picture.js"

const NAMES = {lens: "stages", attention: "attention", beam: "beam search", gradients: "gradient through time",
  saliency: "contribution of each token", cells: "text coloured by a unit"}

/** The model of the same task whose name has the longest common prefix with that of `model`. */
function mostSimilar(model, others) {
  const common = name => { let k = 0; while (k < name.length && name[k] === model.name[k]) k++; return k }
  return others.filter(each => each.task === model.task).sort((a, b) => common(b.name) - common(a.name))[0]
}

export class ComparePane extends Pane {
  async render(signal) {
    const {model, models, modelNamed} = this.page
    const others = models.filter(each => each.name !== model.name)
    const checkpoints = model.run ? (await api.runs(model.base ?? model.name, 1e9,
      signal)).checkpoints.map(each => `${model.base ?? model.name}@${each}`) : []
    const options = [...others.map(each => each.name), ...checkpoints.filter(each => each !== model.name)]
    if (!options.length) {
      this.controls([])
      return this.showResult(element("p", {class: "empty"},
        "This server has only one model. Start it with two folders to compare two models."))
    }
    const defaultName = mostSimilar(model, others)?.name ?? options[0]
    const other = modelNamed(options.includes(this.page.controls.with) ? this.page.controls.with : defaultName)
    const views = Object.keys(NAMES).filter(view => view !== "lens" && model.views.includes(view) &&
      other.views.includes(view))
    this.controls([
      {key: "with", kind: "select", label: "Compare with", options, value: defaultName,
        hint: "The second model, which gets the same input."},
      {key: "view", kind: "select", label: "Pictures of", options: [["", "no picture"],
        ...views.map(view => [view, NAMES[view]])], value: views[0] ?? "",
        hint: "A view that both models have."},
    ])
    const view = views.includes(this.value("view")) ? this.value("view") : null
    const sides = await Promise.all([model, other].map(each => this.side(each, view, signal)))
    const [one, two] = sides.map(side => side.answer)
    this.showResult(element("p", {class: "hint"}, one === null ||
      two === null ? "" : one === two ? "Both give the same answer." : "They give different answers."),
      element("div", {class: "pair"}, ...sides.map(side => side.card)))
  }

  /** One model's answer with the probability of each part, and a picture; or the error. */
  async side(model, view, signal) {
    const body = options => ({model: model.name, input: this.page.payload, options})
    try {
      const [{outputs: [output]}, lens] = await Promise.all([
        api.predict({model: model.name, inputs: [this.page.payload]}, signal),
        model.views.includes("lens") ? api.explain("lens", body({}), signal) : null])
      const answer = String(output.output ?? output.label ?? JSON.stringify(output))
      const probabilities = lens ? lens.answered.map((token, k) => [token,
        lens.likeliest[k].find(guess => guess.answer === token)?.probability ?? 0]) : []
      const drawn = view ? (await api.explain(view, body({}), signal)).pictures.slice(0, 1).map(picture) : []
      const card = section(model.name, `${model.recipe}, ${Number(model.parameters).toLocaleString("en")} parameters`,
        element("p", {class: "answer"}, bdiText(answer || "(nothing)")),
        output.score === undefined || output.score === null ? null : element("p", {class: "hint"},
          `score ${formatNumber(output.score, 4)}`),
        output.unread ? element("p", {class: "error"},
          `The input is too long: the last ${output.unread} tokens were not read.`) : null,
        probabilities.length ? element("details", {open: probabilities.length <= 24},
          element("summary", {}, "Probability of each part"),
          bars(probabilities.slice(0, 64), {label: "probability of each part of the answer", limit: 1})) : null,
        ...drawn)
      return {answer, card}
    } catch (error) {
      if (!(error instanceof api.ServerError)) throw error
      return {answer: null, card: section(model.name, null, element("p", {class: "error"}, capitalise(error.message)),
        element("p", {class: "hint"}, capitalise(error.hint ?? "")))}
    }
  }
}
