package mysql_test

import (
	"context"
	"database/sql"
	"log"
	"os"

	driver "github.com/go-sql-driver/mysql"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/mysql"
)

func ExampleOpen() {
	db, err := mysql.Open(context.Background(), os.Getenv("DATABASE_URL"), dialect.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
}

// dbcron requires of a program's own pool that an UPDATE counts the rows it matches.
func ExampleWrap() {
	config, err := driver.ParseDSN(os.Getenv("MYSQL_DSN"))
	if err != nil {
		panic(err)
	}
	config.ClientFoundRows = true
	connector, err := driver.NewConnector(config)
	if err != nil {
		panic(err)
	}
	pool := sql.OpenDB(connector)
	defer pool.Close()
	db, err := mysql.Wrap(context.Background(), pool, dialect.Options{})
	if err != nil {
		panic(err) // says which setting the pool lacks
	}
	log.Println(db.Dialect.Title)
}
