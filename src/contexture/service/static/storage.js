// What the browser remembers: choices for good, the key until the tab is closed. Browsers may refuse either.

export function kept(name, place = "localStorage") {
  try {
    return window[place].getItem(`contexture.${name}`);
  } catch {
    return null;
  }
}

export function keep(name, value, place = "localStorage") {
  try {
    if (value === null) window[place].removeItem(`contexture.${name}`);
    else window[place].setItem(`contexture.${name}`, value);
  } catch {
    // a browser that keeps nothing asks again next time
  }
}
