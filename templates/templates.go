// Package templates holds the text of the pages that is not data: HTML and
// Markdown templates, the style sheet and the icon. It embeds them and does
// nothing else; it must not know what is put into them.
package templates

import "embed"

// FS holds the templates (PAGE.html.tmpl, PAGE.md.tmpl, and base and site
// with what pages share), style.css and icon.svg.
//
//go:embed *.tmpl style.css icon.svg
var FS embed.FS
