// Values stored in the browser: settings permanently, the key until the tab is closed. Browsers may deny access.

export function loadItem(name, place = "localStorage") {
  try {
    return window[place].getItem(`contexture.${name}`);
  } catch {
    return null;
  }
}

export function saveItem(name, value, place = "localStorage") {
  try {
    if (value === null) window[place].removeItem(`contexture.${name}`);
    else window[place].setItem(`contexture.${name}`, value);
  } catch {
    // storage is not available; the value is lost with the page
  }
}
