document.addEventListener("DOMContentLoaded", () => {
  const fold = (link) => {
    const target = document.querySelector(link.getAttribute("href") || link.dataset.target);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      target.classList.toggle("show");
      link.setAttribute("aria-expanded", target.classList.contains("show"));
    });
  };
  document.querySelectorAll("[data-toggle='collapse']").forEach(fold);
  const only = document.getElementById("failed-only");
  if (only) {
    only.addEventListener("change", () => document.body.classList.toggle("failed-only", only.checked));
    document.querySelectorAll(".hide-succeeded-validation-target-child").forEach((one) => {
      one.parentElement.classList.add("succeeded");
    });
    document.querySelectorAll(".hide-succeeded-validation-target").forEach((one) => one.classList.add("succeeded"));
    document.querySelectorAll(".hide-succeeded-validations-column-section-target-child").forEach((one) => {
      const section = one.parentElement.parentElement;
      section.classList.add("succeeded");
      document.querySelectorAll(`a[href$='${section.id}']`).forEach((link) => link.classList.add("succeeded"));
    });
  }
});
