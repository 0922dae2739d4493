import { render } from "preact";

import { Store } from "./store";
import { App } from "./view/app";
import { applyTheme } from "./view/theme";

applyTheme();
const place = document.getElementById("app");
if (place !== null) {
  place.textContent = "";
  render(<App store={new Store()} />, place);
}
