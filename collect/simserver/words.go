package simserver

import "strings"

// The vocabulary of the generated text: plain words, written for this
// purpose. Verbs are in the past tense, so that any subject fits.
func words(s string) []string { return strings.Fields(s) }

var (
	determiners = words("the the the the this that each every another one its their our")
	adjectives  = words(`narrow quiet early broad heavy patient distant copper wooden careful sudden steady northern
		shallow bright hollow gentle ordinary curious faded even stubborn crowded silver plain weathered modest deliberate
		restless amber sturdy remote familiar uneven slender rugged inland festive salted loose tidy`)
	nouns = words(`harbour ledger valley engine lantern orchard bridge archive carpenter window river teacher market
		compass garden signal kitchen railway mountain letter village bakery canal machine museum painter station weaver
		cabinet meadow workshop tower bell ferry quarry mill notebook captain forest shoreline granary clock pavilion
		surveyor reservoir terrace printer glazier cellar courtyard monument tide furnace loom barley causeway lighthouse`)
	verbs = words(`carried measured followed repaired described crossed gathered watched opened reached copied guarded
		painted counted moved studied joined traded sheltered raised divided lifted marked supplied settled answered
		balanced circled drained entered framed greeted hauled inspected kept lowered mapped noticed outlined passed`)
	adverbs = words(`slowly often rarely quietly usually gladly nearly later together almost seldom carefully
		openly soon twice evenly brightly patiently abruptly once`)
	prepositions = words("across beside near under beyond behind along toward above between within around past below")
	connectives  = []string{"and", "but", "while", "because", "although", "so", "until", "after", "whereas", "once"}
	openers      = []string{"In the end", "At first", "By then", "Even so", "For a time", "Long before that", "As a rule",
		"On most days", "Without much noise", "Some years later", "To begin with", "Before winter"}
	foreign = []string{"café", "naïve", "façade", "Zürich", "jalapeño", "smörgåsbord", "piñata", "déjà", "Łódź", "čaj",
		"München", "São", "東京", "серебро", "Αθήνα", "☕", "🙂", "👩‍🚀", "→", "€5"}
)
